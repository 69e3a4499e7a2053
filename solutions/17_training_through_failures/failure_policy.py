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
    # BEGIN SOLUTION: the policy
    memory = isqrt(2 * machine["to_memory"] * machine["crash_mtbf"])
    disk = isqrt(2 * machine["to_disk"] * machine["power_mtbf"])
    quorums = [
        (spares, minimum)
        for spares in range(machine["nodes"])
        for minimum in range((machine["nodes"] - spares) // 2 + 1, machine["nodes"] - spares + 1)
    ]
    spares, minimum = max(quorums, key=lambda quorum: _speed(machine, *quorum))
    return max(60, memory), max(60, disk), spares, minimum


def _speed(machine: Mapping[str, int], spares: int, minimum: int) -> float:
    """The mean speed of computing, with as many nodes in repair as chance has it.

    Nodes fail by themselves, so the number in repair is binomial. While a spare gets the state, the
    job has one node less.
    """
    nodes, mtbf, repair = machine["nodes"], machine["node_mtbf"], machine["repair"]
    size, down = nodes - spares, repair / (mtbf + repair)
    swapping = min(1.0, size * machine["swap"] / mtbf)
    mean = 0.0
    for gone in range(nodes + 1):
        chance = comb(nodes, gone) * down**gone * (1 - down) ** (nodes - gone)
        here = min(size, nodes - gone)
        for missing, share in ((0, 1 - swapping), (1, swapping)):
            if here - missing >= minimum:
                mean += chance * share / -(-machine["parts"] // (here - missing))
    stops = 1 if minimum == size else 2  # who waits stands still once more only when a node joins
    return mean * max(0.0, 1 - stops * size * machine["regroup"] / mtbf)
    # END SOLUTION
