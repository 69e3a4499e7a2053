"""failure_policy: checkpoints, spares and a quorum for a machine whose nodes fail.

Notebook 17. Open: there is no right answer.

A job runs for 30 days. A step has `parts` micro-batches, so k nodes take ceil(parts / k) times as
long as for one micro-batch. `spares` nodes are idle at first, the others are in the job. At random
come, with these means in seconds between two,
- failures of each node (`node_mtbf`): it is gone, and idle again after `repair`. Without it the job
  goes on if `minimum` nodes are left, else it waits. While the job has places free, idle nodes take
  them, `swap` seconds later. When a node of the job leaves or joins, all stand still for `regroup`;
- crashes (`crash_mtbf`) and power failures (`power_mtbf`): back to the last checkpoint, after a
  power failure to the last one on disk, and `restart` seconds.

After `memory` seconds of computing a checkpoint goes to the neighbours' memory, and all stand still
for `to_memory` seconds; after `disk` seconds of computing it goes to the disk as well, and they
stand still for `to_disk` in all.

Valid is (memory, disk, spares, minimum) in whole numbers:
- memory and disk of 60 or more; spares of 0 or more; more than half of the other nodes as minimum,
  and no more than these;
- the same on two ranks: no clock, seeded generators; 20 s of processor time in all.

Measured: percent lost of the work that every node does while it is not in repair, and no restart
runs; the mean of twelve fixed logs.

Your answer may use nothing of `course_lib`.
"""

from collections.abc import Mapping
from math import comb, isqrt


def failure_policy(machine: Mapping[str, int]) -> tuple[int, int, int, int]:
    """What a job on this machine does.

    Args:
        machine: `nodes`, `parts`, and the seconds that are named above.

    Returns:
        memory, disk, spares, minimum.
    """
    raise NotImplementedError("failure_policy: the policy")
