"""mutant: of this rank's outputs alone: the sum over the ranks is missing, the gradient of the input is not summed over the ranks"""

import torch
from torch import nn
from torch.nn.functional import linear

from course_lib.comm import Group


class ColumnParallelLinear(nn.Module):

    def __init__(self, full: nn.Linear, group: Group) -> None:
        super().__init__()
        self.group = group
        rows = full.weight.tensor_split(group.size)[group.index]
        self.weight = nn.Parameter(rows.clone())
        self.bias = None
        if full.bias is not None:
            own = full.bias.tensor_split(group.size)[group.index]
            self.bias = nn.Parameter(own.clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return linear(x, self.weight, self.bias)
