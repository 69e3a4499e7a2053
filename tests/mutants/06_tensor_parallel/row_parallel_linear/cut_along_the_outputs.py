"""mutant: has the wrong shape, along the inputs (dim 1)"""

import torch
from torch import nn
from torch.nn.functional import linear

from course_lib.comm import Group
from course_lib.comm.autograd import reduce_from_group


class RowParallelLinear(nn.Module):

    def __init__(self, full: nn.Linear, group: Group) -> None:
        super().__init__()
        self.group = group
        part = full.weight.tensor_split(group.size)[group.index]
        self.weight = nn.Parameter(part.clone())
        self.bias = None if full.bias is None else nn.Parameter(full.bias.clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = reduce_from_group(linear(x, self.weight), self.group)
        return y if self.bias is None else y + self.bias
