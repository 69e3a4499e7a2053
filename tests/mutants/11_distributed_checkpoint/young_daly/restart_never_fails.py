"""mutant: a failure during a restart begins it anew"""

import math
from collections.abc import Sequence


def job_mtbf(node_mtbf: float, nodes: int) -> float:
    """Mean time between failures of a job of many nodes."""
    return node_mtbf / nodes


def young(cost: float, mtbf: float) -> float:
    """Young's interval."""
    return math.sqrt(2 * cost * mtbf)


def daly(cost: float, mtbf: float) -> float:
    """Daly's interval."""
    r = cost / (2 * mtbf)
    if r >= 1:
        return mtbf
    return math.sqrt(2 * cost * mtbf) * (1 + math.sqrt(r) / 3 + r / 9) - cost


def lost_share(interval: float, cost: float, restart: float, mtbf: float) -> float:
    """The share of the time that goes into checkpoints, restarts and work done again."""
    failures = math.exp((interval + cost) / mtbf) - 1
    restarting = mtbf * (math.exp(restart / mtbf) - 1)
    return 1 - interval / (failures * (mtbf + restarting))


def elapsed(
    work: float, interval: float, cost: float, restart: float, failures: Sequence[float]
) -> float:
    """How long a job takes, from its start to its end, with these failures."""
    coming = iter(failures)
    failure = next(coming, math.inf)
    now = saved = 0.0
    while saved < work:
        piece = min(interval, work - saved)
        end = now + piece + cost
        if failure < end:
            now = failure + restart
            while failure < now:
                failure = next(coming, math.inf)
        else:
            now, saved = end, saved + piece
    return now
