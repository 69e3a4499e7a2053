"""mutant: the dearest stage is too dear"""

import math
from collections.abc import Sequence

import torch

from course_lib.comm import Group, all_reduce


def split_stages(costs: Sequence[float], p: int) -> list[range]:
    n = len(costs)
    if n < p:
        raise ValueError(f"{n} layers for {p} stages: each stage needs at least one")
    limit = max(math.ceil(max(costs)), math.ceil(sum(costs) / p))
    while True:
        stages, begin = [], 0
        for layer in range(1, n + 1):
            full = layer < n and sum(costs[begin : layer + 1]) > limit
            if layer == n or full or n - layer < p - len(stages):
                stages.append(range(begin, layer))
                begin = layer
        if len(stages) <= p:
            return stages
        limit += 1


def sum_tied_gradient(weight: torch.nn.Parameter, pair: Group) -> None:
    if weight.grad is None:
        weight.grad = torch.zeros_like(weight)
    all_reduce(weight.grad, pair)
