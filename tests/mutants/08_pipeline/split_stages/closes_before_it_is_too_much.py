"""mutant: the dearest stage is too dear, misses cuts that are better"""

from collections.abc import Sequence

import torch

from course_lib.comm import Group, all_reduce


def split_stages(costs: Sequence[float], p: int) -> list[range]:
    n = len(costs)
    if n < p:
        raise ValueError(f"{n} layers for {p} stages: each stage needs at least one")
    stages, begin = [], 0
    for left in range(p, 1, -1):
        share, end = sum(costs[begin:]) / left, begin + 1
        while end < n - left + 1 and sum(costs[begin : end + 1]) <= share:
            end += 1
        stages.append(range(begin, end))
        begin = end
    return [*stages, range(begin, n)]


def sum_tied_gradient(weight: torch.nn.Parameter, pair: Group) -> None:
    if weight.grad is None:
        weight.grad = torch.zeros_like(weight)
    all_reduce(weight.grad, pair)
