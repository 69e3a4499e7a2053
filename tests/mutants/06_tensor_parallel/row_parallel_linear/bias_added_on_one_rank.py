"""mutant: bias.grad, is None, is the bias added on one rank alone"""

import torch
from torch import nn
from torch.nn.functional import linear

from course_lib.comm import Group
from course_lib.comm.autograd import reduce_from_group


class RowParallelLinear(nn.Module):

    def __init__(self, full: nn.Linear, group: Group) -> None:
        super().__init__()
        self.group = group
        part = full.weight.tensor_split(group.size, dim=1)[group.index]
        self.weight = nn.Parameter(part.clone())
        self.bias = None if full.bias is None else nn.Parameter(full.bias.clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        bias = self.bias if self.group.index == 0 else None
        return reduce_from_group(linear(x, self.weight, bias), self.group)
