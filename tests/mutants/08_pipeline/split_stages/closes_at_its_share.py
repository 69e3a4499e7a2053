"""mutant: the dearest stage is too dear, misses cuts that are better"""

from collections.abc import Sequence

import torch

from course_lib.comm import Group, all_reduce


def split_stages(costs: Sequence[float], p: int) -> list[range]:
    n = len(costs)
    if n < p:
        raise ValueError(f"{n} layers for {p} stages: each stage needs at least one")
    share, begin, stages = sum(costs) / p, 0, []
    for layer in range(n):
        left = p - len(stages) - 1  # stages to come
        enough = sum(costs[begin : layer + 1]) >= share or n - layer - 1 == left
        if left and enough and n - layer - 1 >= left:
            stages.append(range(begin, layer + 1))
            begin = layer + 1
    return [*stages, range(begin, n)]


def sum_tied_gradient(weight: torch.nn.Parameter, pair: Group) -> None:
    if weight.grad is None:
        weight.grad = torch.zeros_like(weight)
    all_reduce(weight.grad, pair)
