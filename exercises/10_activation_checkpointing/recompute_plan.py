"""recompute_plan: which tensors of a graph to drop, and when to compute them again, under a budget.

Notebook 10. Open: there is no right answer.

Node v makes a tensor of sizes[v] bytes from those of its inputs, at a cost of costs[v]. A plan is a
list of texts, done one after the other:
- `F3` makes tensor 3, which is not there; its inputs are;
- `D3` drops tensor 3, which is there;
- `B3` is node 3's backward; tensor 3 and its inputs are there.

A plan is valid if
- each node has one B, the last node first;
- after each step at most `budget` bytes are there: enough to make what any B needs from nothing
  (gradients do not count);
- it is the same on two ranks: no clock, seeded generators; 20 s of processor time in all.

Measured: the cost of making each tensor once over that of all Fs; the mean of twelve fixed cases.

Your answer may use nothing of `course_lib`.
"""

from collections.abc import Iterable, Sequence
from itertools import product


def recompute_plan(
    costs: Sequence[int], sizes: Sequence[int], inputs: Sequence[Sequence[int]], budget: int
) -> list[str]:
    """What is made, dropped and used for a backward, in order.

    Args:
        costs: of each node.
        sizes: bytes of each node's tensor.
        inputs: of each node, the nodes whose tensors it takes.
        budget: bytes.
    """
    raise NotImplementedError("recompute_plan: the plan")
