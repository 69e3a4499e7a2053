"""mutant: the rank goes on, but rank 1 cannot"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from course_lib.comm import Group, all_reduce

Add = Callable[[torch.Tensor], torch.Tensor]


def agreed_count(kept: int, whole: Sequence[int], budget: int, group: Group) -> int:
    n = len(whole)
    enough = (k for k in range(n + 1) if k * kept + sum(whole[k:]) <= budget)
    need = next(enough, n + 1)
    count = torch.tensor(need, device=group.device)
    all_reduce(count, group, "max")
    if need > n:
        raise MemoryError(f"a rank has too little memory to recompute all of {n} blocks")
    return int(count)


class Sum(torch.autograd.Function):

    @staticmethod
    def forward(
        ctx: Any, part: torch.Tensor, sums: deque[torch.Tensor], first: bool, group: Group
    ) -> torch.Tensor:
        if not first:
            return sums.popleft()
        total = part.clone()
        all_reduce(total, group)
        sums.append(total.detach())
        return total

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        return grads[0], None, None, None


def recomputed(
    block: Callable[[torch.Tensor, Add], torch.Tensor], x: torch.Tensor, group: Group
) -> torch.Tensor:
    sums: deque[torch.Tensor] = deque()
    runs = iter((True, False))

    def run(x: torch.Tensor) -> torch.Tensor:
        first = next(runs)
        return block(x, lambda part: Sum.apply(part, sums, first, group))

    return checkpoint(run, x, use_reentrant=False)
