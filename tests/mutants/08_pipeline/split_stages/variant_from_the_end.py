"""variant: from the end; the gradient in place"""

from collections.abc import Sequence
from functools import cache

import torch

from course_lib.comm import Group, all_reduce


def split_stages(costs: Sequence[float], p: int) -> list[range]:
    n = len(costs)
    if n < p:
        raise ValueError(f"{n} layers for {p} stages: each stage needs at least one")

    @cache
    def best(end: int, stages: int) -> tuple[float, tuple[range, ...]]:
        if stages == 1:
            return sum(costs[:end]), (range(end),)
        options = []
        for cut in range(stages - 1, end):
            dearest, before = best(cut, stages - 1)
            options.append((max(dearest, sum(costs[cut:end])), cut, before))
        dearest, cut, before = min(options, key=lambda option: option[:2])
        return dearest, (*before, range(cut, end))

    return list(best(n, p)[1])


def sum_tied_gradient(weight: torch.nn.Parameter, pair: Group) -> None:
    if weight.grad is None:
        weight.grad = torch.zeros_like(weight)
    all_reduce(weight.grad, pair)
