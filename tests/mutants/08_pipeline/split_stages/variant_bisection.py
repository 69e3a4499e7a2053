"""variant: the smallest limit on a stage that p stages can keep, by halving"""

from collections.abc import Sequence

import torch

from course_lib.comm import Group, all_reduce


def split_stages(costs: Sequence[float], p: int) -> list[range]:
    n = len(costs)
    if n < p:
        raise ValueError(f"{n} layers for {p} stages: each stage needs at least one")

    def within(limit: float) -> list[range]:
        stages, begin = [], 0
        for layer in range(1, n):
            full = sum(costs[begin : layer + 1]) > limit
            if full or n - layer < p - len(stages):  # a layer is left for each other stage
                stages.append(range(begin, layer))
                begin = layer
        return [*stages, range(begin, n)]

    low, high = max(costs), float(sum(costs))
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (low, middle) if len(within(middle)) <= p else (middle, high)
    return within(low if len(within(low)) <= p else high)


def sum_tied_gradient(weight: torch.nn.Parameter, pair: Group) -> None:
    if weight.grad is None:
        weight.grad = torch.zeros_like(weight)
    all_reduce(weight.grad, pair)
