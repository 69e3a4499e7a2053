"""mutant: twice as much"""

import math
from collections.abc import Sequence
from functools import cache

import torch

from course_lib.comm import Group, all_reduce


def split_stages(costs: Sequence[float], p: int) -> list[range]:
    n = len(costs)
    if n < p:
        raise ValueError(f"{n} layers for {p} stages: each stage needs at least one")

    @cache
    def best(first: int, stages: int) -> tuple[float, tuple[range, ...]]:
        if stages == 1:
            return sum(costs[first:]), (range(first, n),)
        found: tuple[float, tuple[range, ...]] = (math.inf, ())
        for cut in range(first + 1, n - stages + 2):
            dearest, rest = best(cut, stages - 1)
            dearest = max(dearest, sum(costs[first:cut]))
            if dearest < found[0]:
                found = dearest, (range(first, cut), *rest)
        return found

    return list(best(0, p)[1])


def sum_tied_gradient(weight: torch.nn.Parameter, pair: Group) -> None:
    if weight.grad is None:
        weight.grad = torch.zeros_like(weight)
    all_reduce(weight.grad, pair)
    copy = weight.detach().clone()
    all_reduce(copy, pair, "avg")
