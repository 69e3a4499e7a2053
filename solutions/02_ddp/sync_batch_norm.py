"""Batch norm over the batch of all ranks, from sums that are added up in one all-reduce.

Notebook 02. In training, batch norm normalises each feature by its mean and variance over the
batch. With data parallelism the batch is spread over several ranks, and a rank that uses only its
own rows trains a different network than one process would: the fewer rows, the noisier. Means and
variances of parts cannot simply be averaged, but sums can be added: [Σx, Σx², n] over all rows of
all ranks gives

    mean = Σx / n      var = Σx² / n - mean²      y = (x - mean) / sqrt(var + eps)·weight + bias

Rules for training mode:

1. Make one all-reduce in forward, of 2C+1 numbers for C features, and one in backward. Ranks may
   have different numbers of rows, also one row or none; n, the sum over the ranks, is above 1.
2. The outputs are those that `nn.BatchNorm1d` in one process gives for the rows of all ranks
   together. The gradients of the input are those of the *sum* of all ranks' losses, also as in one
   process. Each row changes the mean and the variance on every rank, so gradients flow through the
   sums as well, back across the ranks. The sum over ranks is linear: its backward is the same sum,
   of gradients.
3. The gradients of weight and bias are this rank's own summands. Adding them up over the ranks is
   the job of data parallelism, as for all other parameters.
4. running_mean and running_var move towards the mean and the *unbiased* variance n/(n-1)·var over
   all ranks: running = (1 - momentum)·running + momentum·new. They are not part of the graph.

In evaluation mode the running statistics are used instead, and nothing is sent.

Everything is in float64 here. In float32, Σx² - (Σx)²/n loses the variance if the mean is large:
`SyncBatchNorm` of `course_lib.parallel` shows what to do about it. `all_reduce` of
`course_lib.comm` works in place and is invisible to autograd: that is why there is the autograd
function below.
"""

from typing import Any

import torch
from torch import nn

from course_lib.comm import Group, all_reduce


class SumOverRanks(torch.autograd.Function):
    """The sum of a tensor over the ranks, through which gradients flow. You may use it or not.

    Use it as `total = SumOverRanks.apply(tensor, group)`.
    """

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, group: Group) -> torch.Tensor:
        """Returns the sum of all ranks' tensors, a new tensor."""
        # BEGIN SOLUTION: the sum over the ranks
        ctx.group = group  # mutate: same
        total = tensor.clone()
        all_reduce(total, group)
        return total
        # END SOLUTION

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Takes this rank's gradient of the sum, and returns the gradient of its summand."""
        # BEGIN SOLUTION: the gradient of this rank's summand; None for the group
        total = grad.clone()  # mutate: same
        all_reduce(total, ctx.group)
        return total, None
        # END SOLUTION


class SyncBatchNorm1d(nn.Module):
    """Batch norm of inputs [B, C] over the rows of all ranks.

    Args:
        num_features: C.
        group: the ranks.
        eps: added to the variance.
        momentum: weight of the new batch in the running statistics.
    """

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
        """Normalises x [B, C]: with all ranks' rows in training, else by running statistics."""
        # BEGIN SOLUTION: statistics, running statistics, output
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
        # END SOLUTION
