"""variant: the sum goes past autograd, as a detached difference"""

import torch
from torch import nn
from torch.nn.functional import linear

from course_lib.comm import Group, all_reduce


class RowParallelLinear(nn.Module):

    def __init__(self, full: nn.Linear, group: Group) -> None:
        super().__init__()
        self.group = group
        part = full.weight.tensor_split(group.size, dim=1)[group.index]
        self.weight = nn.Parameter(part.clone())
        self.bias = None if full.bias is None else nn.Parameter(full.bias.clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        own = linear(x, self.weight)
        total = own.detach().clone()
        all_reduce(total, self.group)
        y = own + (total - own).detach()
        return y if self.bias is None else y + self.bias
