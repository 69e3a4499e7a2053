"""recompute_plan: decide which tensors of a graph to drop and when to compute them again.

Notebook 10. This exercise is open: it has no single right answer. Valid plans are compared by how
much they compute again.

Node v of the graph computes tensor v, of sizes[v] bytes, from the tensors of the nodes inputs[v],
at a cost of costs[v]. The nodes count from 0, and every input has a smaller number than its node.
At first, no tensor is in memory. You return a plan: a list of texts, which are carried out in
order:
- `F3` computes tensor 3 and keeps it. Tensor 3 must not be in memory; its inputs must be.
- `D3` drops tensor 3 from memory, where it must be.
- `B3` runs node 3's backward. Tensor 3 and its inputs must be in memory, and they stay there.

A plan is valid if
- each node's backward runs once, from the last node to the first;
- after each text, the tensors in memory have at most `budget` bytes. Gradients do not count. The
  budget is always large enough to prepare any one backward from empty memory;
- two ranks that get the same arguments return the same plan: look at no clock, and seed every
  random generator. All cases of a check together may take 20 s of processor time.

Measured: the cost of computing each tensor once, divided by the cost of all Fs in the plan; more is
better, and 1 would be a plan that computes nothing twice. The figure is the mean over twelve fixed
cases.

Your answer may use nothing of `course_lib`.
"""

from collections.abc import Iterable, Sequence
from itertools import product


def recompute_plan(
    costs: Sequence[int], sizes: Sequence[int], inputs: Sequence[Sequence[int]], budget: int
) -> list[str]:
    """Plans what is computed and dropped, and when each backward runs.

    Args:
        costs: the cost of computing each node's tensor once.
        sizes: bytes of each node's tensor.
        inputs: for each node, the nodes whose tensors it takes; an empty list for node 0.
        budget: bytes that may be in memory.

    Returns:
        Texts such as `F3`, `D3` and `B3`.
    """
    raise NotImplementedError("recompute_plan: the plan")
