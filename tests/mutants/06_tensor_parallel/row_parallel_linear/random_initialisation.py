"""mutant: a new layer's numbers are random, has the wrong value"""

import torch
from torch import nn
from torch.nn.functional import linear

from course_lib.comm import Group
from course_lib.comm.autograd import reduce_from_group


class RowParallelLinear(nn.Module):

    def __init__(self, full: nn.Linear, group: Group) -> None:
        super().__init__()
        self.group = group
        count = full.weight.tensor_split(group.size, dim=1)[group.index].shape[1]
        inner = nn.Linear(count, full.out_features, full.bias is not None, dtype=full.weight.dtype)
        self.weight, self.bias = inner.weight, inner.bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = reduce_from_group(linear(x, self.weight), self.group)
        return y if self.bias is None else y + self.bias
