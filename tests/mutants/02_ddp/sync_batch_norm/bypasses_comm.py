"""mutant: called past course_lib.comm"""

from typing import Any

import torch
from torch import nn

from course_lib.comm import Group, all_reduce


class SumOverRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, group: Group) -> torch.Tensor:
        ctx.group = group
        total = tensor.clone()
        torch.distributed.all_reduce(total, group=group.handle)
        return total

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        total = grad.clone()
        all_reduce(total, ctx.group)
        return total, None


class SyncBatchNorm1d(nn.Module):
    def __init__(
        self, num_features: int, group: Group, eps: float = 1e-5, momentum: float = 0.1
    ) -> None:
        super().__init__()
        self.group, self.eps, self.momentum = group, eps, momentum
        self.weight = nn.Parameter(torch.ones(num_features, dtype=torch.float64))
        self.bias = nn.Parameter(torch.zeros(num_features, dtype=torch.float64))
        self.register_buffer("running_mean", torch.zeros(num_features, dtype=torch.float64))
        self.register_buffer("running_var", torch.ones(num_features, dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean, var = self.running_mean, self.running_var
        if self.training:
            count = x.new_tensor([x.shape[0]])
            sums = SumOverRanks.apply(torch.cat([x.sum(0), x.square().sum(0), count]), self.group)
            n = sums[-1].detach()
            mean, square = (sums[:-1] / n).chunk(2)
            var = square - mean.square()
            with torch.no_grad():
                self.running_mean.lerp_(mean, self.momentum)
                self.running_var.lerp_(var * n / (n - 1), self.momentum)
        return (x - mean) / (var + self.eps).sqrt() * self.weight + self.bias
