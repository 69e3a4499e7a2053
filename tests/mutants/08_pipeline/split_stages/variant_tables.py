"""variant: tables instead of recursion; last of the best cuts; messages for the weight"""

from collections.abc import Sequence
from itertools import accumulate

import torch

from course_lib.comm import Group, exchange


def split_stages(costs: Sequence[float], p: int) -> list[range]:
    n = len(costs)
    if n < p:
        raise ValueError(f"{n} layers for {p} stages: each stage needs at least one")
    upto = [0, *accumulate(costs)]
    best: dict[tuple[int, int], tuple[float, int]] = {}  # layers, stages: the dearest, its begin
    for end in range(1, n + 1):
        best[end, 1] = (upto[end], 0)
    for stages in range(2, p + 1):
        for end in range(stages, n + 1):
            best[end, stages] = min(
                (max(best[cut, stages - 1][0], upto[end] - upto[cut]), -cut)
                for cut in range(stages - 1, end)
            )
    found, end = [], n
    for stages in range(p, 0, -1):
        begin = -best[end, stages][1] if stages > 1 else 0
        found.append(range(begin, end))
        end = begin
    return found[::-1]


def sum_tied_gradient(weight: torch.nn.Parameter, pair: Group) -> None:
    mine = torch.zeros_like(weight.data) if weight.grad is None else weight.grad.contiguous()
    weight.grad = mine
    if pair.size == 2:
        other = torch.empty_like(mine)
        exchange(mine, pair.next, other, pair.next, pair)
        weight.grad = mine + other
