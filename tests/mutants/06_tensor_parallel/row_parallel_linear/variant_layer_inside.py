"""variant: an nn.Linear without bias inside, the bias beside it, cut by chunks of the transpose"""

import torch
from torch import nn

from course_lib.comm import Group
from course_lib.comm.autograd import reduce_from_group


class RowParallelLinear(nn.Module):

    def __init__(self, full: nn.Linear, group: Group) -> None:
        super().__init__()
        self.group = group
        part = full.weight.detach().t().tensor_split(group.size)[group.index].t()
        self.inner = nn.Linear(part.shape[1], part.shape[0], bias=False, dtype=part.dtype)
        self.inner.weight.data.copy_(part)
        self.register_parameter("bias", None)
        if full.bias is not None:
            self.bias = nn.Parameter(full.bias.data.clone())

    @property
    def weight(self) -> torch.Tensor:
        return self.inner.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = reduce_from_group(self.inner(x), self.group)
        return y if self.bias is None else y + self.bias
