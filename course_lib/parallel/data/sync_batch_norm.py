"""Batch norm over the batch of all ranks: sums add up, means and variances do not.

Notebook: 02 Data parallel (sync_batch_norm).
Paper: Ioffe and Szegedy, "Batch Normalization" (2015), algorithm 1; Chan, Golub and LeVeque,
"Algorithms for Computing the Sample Variance" (1983), equations 2.1, for parts of unequal size.
Costs in each forward of training one all-reduce of 2C+1 float64 numbers, 2(N-1)/N·8(2C+1) bytes a
rank, in each backward one of 2C, 2(N-1)/N·16C; evaluation sends nothing.
The production version (torch.nn.SyncBatchNorm) gathers means and variances instead, has fused
kernels, runs only on GPUs, and never makes the host wait for a count.

Legend: N ranks, C channels, x and y of shape (B, C, ...), B may differ from rank to rank.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm

from course_lib.comm import CommError, Group, all_reduce
from course_lib.trace import Refusal


class SyncBatchNorm(_BatchNorm):
    """Batch norm whose statistics in training are those of all ranks' batches together.

    Parameters, buffers, their names and their meaning are those of `nn.BatchNorm1d`, so a
    `state_dict` fits both. Gradients are those of the sum of all ranks' losses. For the input they
    are exact, through the statistics. For weight and bias they are this rank's summand, as for
    every other parameter; data parallelism adds these up.

    All ranks must run the same sequence of forwards and backwards. If the order in which gradients
    come may differ between ranks, give it a group of its own (`group.split`), or one rank's
    all-reduce could meet a bucket's all-reduce of another.

    Args:
        num_features: C.
        group: the data-parallel ranks.
        eps: added to the variance.
        momentum: weight of the new batch in the running statistics; None for the mean of all
            batches.
        affine: whether to have weight and bias, C each.
        track_running_stats: whether to have running statistics; without them, evaluation
            normalises by the local batch, and sends nothing either.
    """

    def __init__(
        self,
        num_features: int,
        group: Group,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats)
        self.group = group

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Normalises each channel.

        Args:
            input: (B, C) or (B, C, ...); a rank may have no row at all.

        Raises:
            Refusal: the input has other channels than the module.
            CommError: all ranks together have only one value in each channel.
        """
        self._check_input_dim(input)
        if not self.training:
            return F.batch_norm(
                input,
                self.running_mean,
                self.running_var,
                self.weight,
                self.bias,
                training=self.running_mean is None,
                eps=self.eps,
            )
        mean, var, count = global_statistics(input.detach(), self.group)
        self._track(mean, var * (count / (count - 1)))
        return _Normalise.apply(
            input, self.weight, self.bias, mean, (var + self.eps).rsqrt(), count, self.group
        )

    @torch.no_grad()
    def _track(self, mean: torch.Tensor, var: torch.Tensor) -> None:
        """Moves the running statistics towards this batch's; they keep the *unbiased* variance."""
        if self.running_mean is None or self.running_var is None:
            return
        assert self.num_batches_tracked is not None
        self.num_batches_tracked += 1
        factor = self.momentum
        if factor is None:
            factor = 1.0 / float(self.num_batches_tracked)
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), factor)
        self.running_var.lerp_(var.to(self.running_var.dtype), factor)

    def _check_input_dim(self, input: torch.Tensor) -> None:
        if input.dim() < 2 or input.shape[1] != self.num_features:
            raise Refusal(
                f"normalise {self.num_features} channels",
                f"an input of shape {tuple(input.shape)} on rank {self.group.rank}",
                "the channels are dim 1, and there must be as many as the module has",
            )


def global_statistics(x: torch.Tensor, group: Group) -> tuple[torch.Tensor, torch.Tensor, float]:
    """Mean and biased variance of each channel over all ranks' rows, in one all-reduce.

    What travels is [Σx, Σx², n], since sums of unequal parts can be added. Σx² - (Σx)²/n loses
    as many digits as the mean is larger than the spread, and float32 has only seven. So nothing is
    squared in float32: each rank takes mean and variance of its own rows by torch's `var_mean`,
    which subtracts the mean first, and only these 2C numbers become sums, in float64. What is left
    is an error of eps·mean/spread, eps that of x; squares in the dtype of x would square it.

    Args:
        x: (B, C, ...), B ≥ 0.
        group: the ranks.

    Returns:
        Mean and variance, (C) in float64, and n, the values that all ranks have in a channel.

    Raises:
        CommError: n is below 2.
    """
    channels, here = x.shape[1], x.numel() // x.shape[1]
    sums = torch.zeros(2 * channels + 1, dtype=torch.float64, device=x.device)
    if here:
        var, mean = torch.var_mean(_wide(x), _dims(x), correction=0)
        mean = mean.double()
        sums[:channels] = mean * here
        sums[channels:-1] = (var.double() + mean.square()) * here
        sums[-1] = here
    all_reduce(sums, group)
    count = float(sums[-1])
    if count < 2:
        raise CommError(
            "the variance of each channel over the group",
            f"{count:.0f} values in a channel on all of {group}",
            "one value has no spread; use a larger batch, or evaluation mode",
        )
    mean, square = sums[:channels] / count, sums[channels:-1] / count
    return mean, (square - mean.square()).clamp_(min=0), count


class _Normalise(torch.autograd.Function):
    """y = x̂·weight + bias, x̂ = (x - mean)·scale, where mean and scale depend on all ranks' x.

    With g = ∂loss/∂y·weight, and a bar for the mean over all n values of a channel on all ranks,
    ∂loss/∂x = scale·(g - ḡ - x̂·(the bar of g·x̂)). The second term comes through the mean, the
    third through the variance; one all-reduce makes the sums of both.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        weight: torch.Tensor | None,
        bias: torch.Tensor | None,
        mean: torch.Tensor,
        scale: torch.Tensor,
        count: float,
        group: Group,
    ) -> torch.Tensor:
        ctx.save_for_backward(x, weight, mean, scale)
        ctx.count, ctx.group = count, group
        ctx.bias_dtype = None if bias is None else bias.dtype
        y = _normal(x, mean, scale)
        if weight is not None:
            y = y * _channels(weight, y)
        if bias is not None:
            y = y + _channels(bias, y)
        return y.to(x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, weight, mean, scale = ctx.saved_tensors
        grad, normal = _wide(grads[0]), _normal(x, mean, scale)
        dims = _dims(x)
        own = torch.stack(
            [grad.sum(dims, dtype=torch.float64), (grad * normal).sum(dims, dtype=torch.float64)]
        )
        grad_weight = grad_bias = grad_x = None
        if weight is not None:
            grad_weight = own[1].to(weight.dtype)
        if ctx.needs_input_grad[2]:
            grad_bias = own[0].to(ctx.bias_dtype)
        if ctx.needs_input_grad[0]:
            total = own.clone()
            all_reduce(total, ctx.group)
            through_mean, through_var = (_channels(row / ctx.count, grad) for row in total)
            factor = scale if weight is None else scale * weight
            grad_x = (grad - through_mean - normal * through_var) * _channels(factor, grad)
            grad_x = grad_x.to(x.dtype)
        return grad_x, grad_weight, grad_bias, None, None, None, None


def convert_sync_batch_norm(module: nn.Module, group: Group) -> nn.Module:
    """Replaces every `nn.BatchNorm1d`, `2d` and `3d` in a module by one that sees all ranks.

    The new modules hold the same parameter and buffer objects, so an optimizer that has them stays
    valid; a batch norm that is used in several places stays one. Call it before wrapping.

    Args:
        module: changed in place.
        group: the data-parallel ranks.

    Returns:
        The module, or, if it is a batch norm itself, what replaces it.
    """
    return _converted(module, group, {})


def _converted(module: nn.Module, group: Group, known: dict[nn.Module, nn.Module]) -> nn.Module:
    if module not in known:
        is_norm = isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d)
        known[module] = _replacement(module, group) if is_norm else module  # type: ignore[arg-type]
        for name, child in module._modules.items():  # named_children would leave out a second use
            if child is not None:
                module._modules[name] = _converted(child, group, known)
    return known[module]


def _replacement(norm: _BatchNorm, group: Group) -> SyncBatchNorm:
    new = SyncBatchNorm(
        norm.num_features, group, norm.eps, norm.momentum, norm.affine, norm.track_running_stats
    )
    new._parameters.update(norm._parameters)
    new._buffers.update(norm._buffers)
    new.training = norm.training
    return new


# --- shapes and dtypes ---------------------------------------------------------------------------
def _dims(x: torch.Tensor) -> list[int]:
    """All dims but that of the channels."""
    return [dim for dim in range(x.dim()) if dim != 1]


def _channels(values: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """(C) as (1, C, 1, ...) in the dtype of `like`, to be broadcast over it."""
    return values.to(like.dtype).view(1, -1, *[1] * (like.dim() - 2))


def _wide(x: torch.Tensor) -> torch.Tensor:
    """At least float32: half precision has too few digits for a mean."""
    return x.float() if x.dtype.itemsize < 4 else x


def _normal(x: torch.Tensor, mean: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """x̂; the mean is subtracted before anything is multiplied, so that its digits cancel."""
    wide = _wide(x)
    return (wide - _channels(mean, wide)) * _channels(scale, wide)
