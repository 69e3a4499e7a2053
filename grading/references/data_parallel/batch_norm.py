"""What one process's batch norm makes of all ranks' rows, and what known mistakes make of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn


@dataclass(frozen=True)
class Step:
    """One forward and backward over all rows.

    Attributes:
        y: the output [rows, C].
        x: gradient of the input [rows, C].
        weight: each row's summand of the weight's gradient [rows, C].
        bias: the same of the bias's.
    """

    y: torch.Tensor
    x: torch.Tensor
    weight: torch.Tensor
    bias: torch.Tensor


class OneProcess:
    """The reference.

    Args:
        rows: of each rank; they lie one after the other.
        weights: weight and bias, C each.
        batches: for each step the input [rows, C] and what its output is multiplied with.
        eps: of the norm.
        momentum: of the norm.
    """

    def __init__(
        self,
        rows: Sequence[int],
        weights: Sequence[torch.Tensor],
        batches: Sequence[Sequence[torch.Tensor]],
        eps: float,
        momentum: float,
    ) -> None:
        self.rows, self.batches, self.count = list(rows), batches, weights[0].numel()
        self.weight, self.bias = weights
        self.eps, self.momentum = eps, momentum

    def part(self, tensor: torch.Tensor, rank: int) -> torch.Tensor:
        """A rank's rows."""
        return tensor.split(self.rows)[rank]

    # --- right -----------------------------------------------------------------------------------
    def norm(self) -> nn.BatchNorm1d:
        """The norm, with its weights."""
        norm = nn.BatchNorm1d(self.count, self.eps, self.momentum, dtype=torch.float64)
        with torch.no_grad():
            norm.weight.copy_(self.weight)
            norm.bias.copy_(self.bias)
        return norm

    def backward(self, step: int) -> Step:
        """What all ranks together must have for one batch."""
        whole, g = self.batches[step]
        x = whole.clone().requires_grad_()
        y = self.norm()(x)
        loss(y, g).backward()
        upstream = g + 3 * y.detach().square()
        mean, var = self.statistics(step)
        normal = (whole - mean) / (var + self.eps).sqrt()
        assert x.grad is not None
        return Step(y.detach(), x.grad, upstream * normal, upstream)

    def running(
        self, step: int, slip: str = "unbiased", momentum: float | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Running mean and variance after this step's batch."""
        mean, var = torch.zeros_like(self.bias), torch.ones_like(self.bias)
        for number in range(step + 1):
            new_mean, new_var = self.statistics(number, slip)
            mean = mean.lerp(new_mean, momentum or self.momentum)
            var = var.lerp(new_var, momentum or self.momentum)
        return mean, var

    def evaluated(self) -> torch.Tensor:
        """The first batch by the running statistics after the last."""
        mean, var = self.running(len(self.batches) - 1)
        return self._affine((self.batches[0][0] - mean) / (var + self.eps).sqrt())

    # --- wrong -----------------------------------------------------------------------------------
    def statistics(self, step: int, slip: str = "") -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and variance of a batch, or what a known mistake makes of them."""
        x = self.batches[step][0]
        mean, var = x.mean(0), x.var(0, correction=0)
        parts = [part for part in x.split(self.rows) if part.shape[0]]
        if slip in ("means", "variances"):
            var = torch.stack([part.var(0, correction=0) for part in parts]).mean(0)
        if slip == "means":
            mean = torch.stack([part.mean(0) for part in parts]).mean(0)
        if slip == "unbiased":
            var = x.var(0)
        return mean, var

    def normalised(self, step: int, slip: str) -> torch.Tensor:
        """All rows, normalised by such statistics."""
        mean, var = self.statistics(step, slip)
        return self._affine((self.batches[step][0] - mean) / (var + self.eps).sqrt())

    def local(self, step: int) -> torch.Tensor:
        """All rows, those of each rank normalised by that rank's statistics."""
        parts = [part for part in self.batches[step][0].split(self.rows) if part.shape[0]]
        return torch.cat(
            [
                self._affine((part - part.mean(0)) / (part.var(0, correction=0) + self.eps).sqrt())
                for part in parts
            ]
        )

    def without(self, slip: str, step: int, rank: int) -> torch.Tensor:
        """The gradient of a rank's rows that lacks something on its way through the statistics.

        Args:
            slip: `detached` if all of it is missing, `local` if the other ranks' losses are.
            step: number of the batch.
            rank: whose rows.
        """
        whole, g = self.batches[step]
        mean, var = self.statistics(step)
        x = self.part(whole, rank).clone().requires_grad_()
        if slip == "local":
            parts = [x if r == rank else p for r, p in enumerate(whole.split(self.rows))]
            mean, var = torch.cat(parts).mean(0), torch.cat(parts).var(0, correction=0)
        y = self._affine((x - mean) / (var + self.eps).sqrt())
        loss(y, self.part(g, rank)).backward()
        assert x.grad is not None
        return x.grad

    def _affine(self, normal: torch.Tensor) -> torch.Tensor:
        return normal * self.weight + self.bias


def loss(y: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    """A sum over rows, so that the losses of parts add up."""
    return (y * g + y.pow(3)).sum()


def sandwich(norm: nn.Module, count: int) -> nn.Module:
    """The norm between two linear maps with numbers of their own.

    They have no bias: before a norm its gradient is zero up to rounding, which AdamW blows up.
    """
    maps = [nn.Linear(count, count, bias=False, dtype=torch.float64) for _ in range(2)]
    for number, each in enumerate(maps):
        draw = torch.Generator().manual_seed(number)
        for parameter in each.parameters():
            parameter.data.normal_(generator=draw)
    return nn.Sequential(maps[0], norm, nn.Tanh(), maps[1])
