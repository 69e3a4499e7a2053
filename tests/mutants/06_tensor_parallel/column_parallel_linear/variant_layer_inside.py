"""variant: an nn.Linear inside, with properties"""

import torch
from torch import nn
from torch.nn.functional import linear

from course_lib.comm import Group
from course_lib.comm.autograd import copy_to_group


class ColumnParallelLinear(nn.Module):

    def __init__(self, full: nn.Linear, group: Group) -> None:
        super().__init__()
        self.group = group
        parts = [p.detach() for p in full.parameters()]
        own = [p.tensor_split(group.size)[group.index] for p in parts]
        rows, columns = own[0].shape
        self.inner = nn.Linear(columns, rows, len(own) > 1, dtype=own[0].dtype)
        with torch.no_grad():
            for mine, new in zip(self.inner.parameters(), own, strict=True):
                mine.copy_(new)

    @property
    def weight(self) -> torch.Tensor:
        return self.inner.weight

    @property
    def bias(self) -> torch.Tensor:
        return self.inner.bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(copy_to_group(x, self.group))
