"""mutant: a new layer's numbers are random, has the wrong value"""

import torch
from torch import nn
from torch.nn.functional import linear

from course_lib.comm import Group
from course_lib.comm.autograd import copy_to_group


class ColumnParallelLinear(nn.Module):

    def __init__(self, full: nn.Linear, group: Group) -> None:
        super().__init__()
        self.group = group
        count = full.weight.tensor_split(group.size)[group.index].shape[0]
        inner = nn.Linear(full.in_features, count, full.bias is not None, dtype=full.weight.dtype)
        self.weight, self.bias = inner.weight, inner.bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return linear(copy_to_group(x, self.group), self.weight, self.bias)
