"""mutant: the outputs are gathered: leave each rank its slice, has the wrong shape"""

import torch
from torch import nn
from torch.nn.functional import linear, pad

from course_lib.comm import Group
from course_lib.comm.autograd import copy_to_group, gather_from_group


class ColumnParallelLinear(nn.Module):

    def __init__(self, full: nn.Linear, group: Group) -> None:
        super().__init__()
        self.group = group
        rows = full.weight.tensor_split(group.size)[group.index]
        self.weight = nn.Parameter(rows.clone())
        self.counts = [len(part) for part in full.weight.tensor_split(group.size)]
        self.bias = None
        if full.bias is not None:
            own = full.bias.tensor_split(group.size)[group.index]
            self.bias = nn.Parameter(own.clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = linear(copy_to_group(x, self.group), self.weight, self.bias)
        most = self.counts[0]
        whole = gather_from_group(pad(y, (0, most - y.shape[-1])), -1, self.group)
        parts = whole.split(most, -1)
        return torch.cat([p[..., :n] for p, n in zip(parts, self.counts, strict=True)], -1)
