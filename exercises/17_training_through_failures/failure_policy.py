"""failure_policy: choose checkpoints, spares and a quorum for a machine whose nodes fail.

Notebook 17. This exercise is open: it has no single right answer. Valid policies are compared by
the work that they lose.

A job runs for 30 days on a machine with `nodes` nodes. At first `spares` of them are idle, and all
others are in the job. A step has `parts` micro-batches; with k nodes it takes ceil(parts / k) times
as long as one micro-batch. Three kinds of failure come at random. Their mean gaps in seconds are
given:
- `node_mtbf`, for each node: the node leaves, and is idle again after `repair` seconds. If at least
  `minimum` nodes are still in the job, it goes on without that node; otherwise it waits. An idle
  node takes each free place in the job, and joins `swap` seconds later. Whenever a node of the job
  leaves or a new one joins, the whole job stands still for `regroup` seconds.
- `crash_mtbf`: the job goes back to its last checkpoint and stands still for `restart` seconds.
- `power_mtbf`: the same, but only checkpoints on disk survive.

After every `memory` seconds of computing, the job saves a checkpoint in the neighbours' memory and
stands still for `to_memory` seconds. After every `disk` seconds of computing, it saves one in
memory and on disk, and stands still for `to_disk` seconds in all.

You return (memory, disk, spares, minimum). A policy is valid if
- all four are whole numbers, memory ≥ 60, disk ≥ 60, and 0 ≤ spares < nodes;
- minimum is more than half of nodes - spares, and at most nodes - spares;
- two ranks that get the same arguments return the same policy: look at no clock, and seed every
  random generator. All cases of a check together may take 20 s of processor time.

Measured: the percentage of work lost; less is better. The work is compared with that of a machine
on which every node computes whenever it is not in repair, except during restarts. The figure is the
mean over twelve fixed logs of failures.

Your answer may use nothing of `course_lib`.
"""

from collections.abc import Mapping
from math import comb, isqrt


def failure_policy(machine: Mapping[str, int]) -> tuple[int, int, int, int]:
    """Chooses the policy of a job on this machine.

    Args:
        machine: `nodes`, `parts`, and the nine times that are named above, in whole seconds:
            `node_mtbf`, `crash_mtbf`, `power_mtbf`, `repair`, `swap`, `regroup`, `restart`,
            `to_memory` and `to_disk`.

    Returns:
        memory and disk in seconds, spares and minimum in nodes.
    """
    raise NotImplementedError("failure_policy: the policy")
