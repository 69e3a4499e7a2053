"""Which layers go to which stage: the cut whose most expensive stage costs least.

Notebook: 08 Pipeline parallel (split_stages), 15 Choosing a strategy.
Paper: Narayanan et al., "PipeDream" (2019), section 3.1.
Costs nothing: it is planned once, before a model is cut.
The production version measures the layers, and can give the ends of a model their own stages.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from course_lib.schedule.action import ScheduleError


def split_stages(costs: Sequence[float], p: int) -> list[range]:
    """Cuts consecutive layers into p stages so that the most expensive stage costs least.

    A pipeline is as fast as its slowest stage. Dynamic programming over (stages, layers): L²·p
    steps for L layers.

    Args:
        costs: of each layer, in any unit, none negative.
        p: stages.

    Returns:
        For each stage its layers; none is empty.

    Raises:
        ScheduleError: fewer layers than stages, p below 1, or a cost that is negative or not
            finite.
    """
    count = len(costs)
    _check_costs(costs, p)
    if not 1 <= p <= count:
        raise ScheduleError(
            f"{p} stages of {count} layers",
            f"{count} layers" if p > 0 else f"{p} stages",
            "every stage holds at least one layer, and there is at least one stage",
        )
    until = [0.0]
    for cost in costs:
        until.append(until[-1] + cost)
    # best[e], for the first e layers: (cost of the most expensive stage so far, the cuts).
    best: dict[int, tuple[float, list[int]]] = {0: (0.0, [0])}
    for stage in range(p):
        best = {
            end: min(
                (max(slowest, until[end] - until[start]), [*cuts, end])
                for start, (slowest, cuts) in best.items()
                if start < end
            )
            for end in range(stage + 1, count - (p - stage - 1) + 1)
        }
    cuts = best[count][1]
    return [range(start, end) for start, end in zip(cuts, cuts[1:], strict=False)]


def _check_costs(costs: Sequence[float], p: int) -> None:
    for layer, cost in enumerate(costs):
        if not 0 <= cost < math.inf:
            asked = f"{p} stages of {len(costs)} layers"
            raise ScheduleError(asked, f"{cost} for layer {layer}", "a cost is a number from 0 on")


def split_model(costs: Sequence[float], p: int) -> list[range]:
    """The blocks of each stage of a model; the ends stay with the first and with the last block.

    Args:
        costs: of embedding, blocks and output layer, in that order.
        p: stages.

    Raises:
        ScheduleError: there are more stages than blocks, no block, or a cost that is negative or
            not finite.
    """
    _check_costs(costs, p)
    if len(costs) < 3:
        why = "the ends of a model stay with its first and its last block"
        raise ScheduleError(f"{p} stages of a model", f"{len(costs)} costs, no block's", why)
    blocks = list(costs[1:-1])
    blocks[0] += costs[0]
    blocks[-1] += costs[-1]
    return split_stages(blocks, p)
