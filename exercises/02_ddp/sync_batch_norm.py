"""Batch norm over the batch of all ranks, from sums that are added up in one all-reduce.

Notebook 02. In training, batch norm normalises each feature by its mean and variance over the
batch. With data parallelism the batch lies on several ranks, and a rank that uses only its own rows
trains another network than one process would: the fewer rows, the noisier. Means and variances of
parts cannot just be averaged, but sums can be added: from [Σx, Σx², n] over all rows of all ranks

    mean = Σx / n      var = Σx² / n - mean²      y = (x - mean) / sqrt(var + eps)·weight + bias

Rules for training mode:

1. One all-reduce in forward, of 2C+1 numbers for C features, and one in backward. Ranks may have
   different numbers of rows, also one row or none; only n summed over the ranks is above 1.
2. The outputs are those that `nn.BatchNorm1d` in one process gives for the rows of all ranks
   together, and so are the gradients of the input: gradients of the *sum* of all ranks' losses. A
   rank's row moves mean and variance on every rank, so gradient flows through the sums as well, and
   back across the ranks. The sum over ranks is linear: its backward is the same sum, of gradients.
3. The gradients of weight and bias are this rank's own summands; adding them up over the ranks is
   data parallelism's work, as for all other parameters.
4. running_mean and running_var move towards the mean and the *unbiased* variance n/(n-1)·var over
   all ranks: running = (1 - momentum)·running + momentum·new. They are not part of the graph.

In evaluation mode the running statistics are used instead, and nothing is sent.

All of it is in float64 here. In float32, Σx² - (Σx)²/n loses the variance if the mean is large:
`SyncBatchNorm` of `course_lib.parallel` shows what to do about it. `all_reduce` of
`course_lib.comm` works in place, and autograd does not see it: that is what the autograd function
is for.

Your answer may use `comm` of `course_lib`; of torch everything but `torch.nn.SyncBatchNorm`.
"""

from typing import Any

import torch
from torch import nn

from course_lib.comm import Group, all_reduce


class SumOverRanks(torch.autograd.Function):
    """The sum of a tensor over the ranks, through which gradients flow; yours to use or not.

    Use it as `total = SumOverRanks.apply(tensor, group)`.
    """

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, group: Group) -> torch.Tensor:
        """The sum of all ranks' tensors, in a new tensor."""
        raise NotImplementedError("sync_batch_norm: the sum over the ranks")

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        """From the gradient of the sum, different on each rank, to that of this rank's summand."""
        raise NotImplementedError("sync_batch_norm: the gradient of this rank's summand; None for the group")


class SyncBatchNorm1d(nn.Module):
    """Batch norm of inputs (B, C) over the rows of all ranks.

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
        """Normalises x (B, C): by all ranks' rows in training, by the running statistics else."""
        raise NotImplementedError("sync_batch_norm: statistics, running statistics, output")
