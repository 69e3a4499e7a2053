"""variant: packed by padding, n as a number, the sum of squares corrected before the division"""

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from course_lib.comm import Group, all_reduce


class SumOverRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, group: Group) -> torch.Tensor:
        ctx.group = group
        total = tensor.clone()
        all_reduce(total, group)
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
            here = x.new_tensor(float(len(x)))
            packed = F.pad(torch.stack([x, x**2], 1).sum(0).flatten(), (0, 1)) + F.pad(
                here[None], (2 * x.shape[1], 0)
            )
            sums = SumOverRanks.apply(packed, self.group)
            n = float(sums[-1])
            mean = sums[: x.shape[1]] / n
            var = (sums[x.shape[1] : -1] - n * mean**2) / n
            with torch.no_grad():
                self.running_mean.lerp_(mean, self.momentum)
                self.running_var.lerp_(var * n / (n - 1), self.momentum)
        return (x - mean) / (var + self.eps).sqrt() * self.weight + self.bias
