"""mutant: past course_lib.comm"""

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import linear

from course_lib.comm import Group


class Summed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, y: torch.Tensor, group: Group) -> torch.Tensor:
        ctx.group = group
        total = y.clone()
        dist.all_reduce(total, group=group.handle)
        return total

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return grad, None


class RowParallelLinear(nn.Module):

    def __init__(self, full: nn.Linear, group: Group) -> None:
        super().__init__()
        self.group = group
        part = full.weight.tensor_split(group.size, dim=1)[group.index]
        self.weight = nn.Parameter(part.clone())
        self.bias = None if full.bias is None else nn.Parameter(full.bias.clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = Summed.apply(linear(x, self.weight), self.group)
        return y if self.bias is None else y + self.bias
