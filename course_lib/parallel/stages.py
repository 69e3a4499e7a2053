"""Which layers go to which stage, and what stages have in common.

Notebook: 08 Pipeline parallel (split_stages).
Paper: Narayanan et al., "PipeDream" (2019), section 3.1, for the partition; Shoeybi et al.,
"Megatron-LM" (2019) for the two copies of a tied embedding.
Costs: planning nothing; tied weights an all-reduce of their bytes between two ranks, every step.
The production version measures the layers, and gives the ends of the model stages of their own.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from course_lib.comm import Group, all_reduce
from course_lib.parallel.schedule import ScheduleError


def split_stages(costs: Sequence[float], p: int) -> list[range]:
    """Cuts consecutive layers into p stages so that the dearest stage costs as little as can be.

    A pipeline is as fast as its slowest stage. Dynamic programming over (stages, layers): L²·p
    steps for L layers.

    Args:
        costs: of each layer, in any unit, none negative.
        p: stages.

    Returns:
        For each stage its layers; none is empty.

    Raises:
        ScheduleError: fewer layers than stages, or p below 1.
    """
    count = len(costs)
    if not 1 <= p <= count:
        raise ScheduleError(
            f"{p} stages of {count} layers",
            f"{count} layers" if p > 0 else f"{p} stages",
            "every stage holds at least one layer, and there is at least one stage",
        )
    until = [0.0]
    for cost in costs:
        until.append(until[-1] + cost)
    # best[e]: (cost of the dearest of the stages so far, their cuts) for the first e layers.
    best: dict[int, tuple[float, list[int]]] = {0: (0.0, [0])}
    for stage in range(p):
        best = {
            end: min(
                (max(dearest, until[end] - until[start]), [*cuts, end])
                for start, (dearest, cuts) in best.items()
                if start < end
            )
            for end in range(stage + 1, count - (p - stage - 1) + 1)
        }
    cuts = best[count][1]
    return [range(start, end) for start, end in zip(cuts, cuts[1:], strict=False)]


def sum_tied_gradient(weight: nn.Parameter, pair: Group) -> None:
    """Makes the two copies of a tied weight get the same gradient: the sum of both.

    Call it after the backward, before the step, on both ranks.

    Args:
        weight: this rank's copy; a `grad` of None counts as zeros.
        pair: the ranks of the first and of the last stage.
    """
    if weight.grad is None:
        weight.grad = torch.zeros_like(weight)
    all_reduce(weight.grad, pair)
