"""variant: expm1, the closed form of the share, and a list of failures"""

import math
from collections.abc import Sequence


def job_mtbf(node_mtbf: float, nodes: int) -> float:
    """Mean time between failures of a job of many nodes."""
    return node_mtbf / nodes


def young(cost: float, mtbf: float) -> float:
    """Young's interval."""
    return (2.0 * cost * mtbf) ** 0.5


def daly(cost: float, mtbf: float) -> float:
    """Daly's interval."""
    if cost >= 2 * mtbf:
        return mtbf
    x = (cost / mtbf / 2) ** 0.5
    return 2 * mtbf * x * (1 + x / 3 + x * x / 9) - cost


def lost_share(interval: float, cost: float, restart: float, mtbf: float) -> float:
    """The share of the time that goes into checkpoints, restarts and work done again."""
    each = mtbf * math.exp(restart / mtbf) * math.expm1((interval + cost) / mtbf)
    return (each - interval) / each


def elapsed(
    work: float, interval: float, cost: float, restart: float, failures: Sequence[float]
) -> float:
    """How long a job takes, from its start to its end, with these failures."""
    left, now, ready = list(failures)[::-1], 0.0, 0.0
    todo = [interval] * int(work // interval)
    if work % interval:
        todo.append(work % interval)
    while todo:
        end = ready + todo[0] + cost
        if left and left[-1] < end:
            now = left.pop()
            ready = now + restart
        else:
            now = ready = end
            todo.pop(0)
    return now
