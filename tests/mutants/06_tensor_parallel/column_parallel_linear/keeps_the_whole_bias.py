"""mutant: bias, has the wrong shape"""

import torch
from torch import nn
from torch.nn.functional import linear

from course_lib.comm import Group
from course_lib.comm.autograd import copy_to_group


class ColumnParallelLinear(nn.Module):

    def __init__(self, full: nn.Linear, group: Group) -> None:
        super().__init__()
        self.group = group
        rows = full.weight.tensor_split(group.size)[group.index]
        self.weight = nn.Parameter(rows.clone())
        self.bias = None
        if full.bias is not None:
            self.bias = nn.Parameter(full.bias.detach().clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        own = self.bias if self.bias is None else self.bias.tensor_split(self.group.size)[self.group.index]
        return linear(copy_to_group(x, self.group), self.weight, own)
