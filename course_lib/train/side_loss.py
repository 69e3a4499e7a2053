"""A loss that arises in the middle of a model, and joins the backward where it arises.

Notebook: 13 3D parallelism.
Source: Megatron-core's MoE auxiliary losses, which go back with the activations in the same way.
Costs nothing on the wire: no stage of a pipeline has to send its loss to the last one.
The production version multiplies it by the main loss's scale, which may change every step.
"""

from __future__ import annotations

from typing import Any

import torch


def with_side_loss(x: torch.Tensor, loss: torch.Tensor, weight: float) -> torch.Tensor:
    """Returns `x`; a backward through it is also a backward through `weight` · `loss`.

    Args:
        x: activations that the main loss depends on.
        loss: one number; without a graph it is left out.
        weight: what the loss is multiplied by, beside the main loss.
    """
    return _Joined.apply(x, loss, weight) if loss.requires_grad else x


class _Joined(torch.autograd.Function):
    """The identity, with a second input whose gradient is a constant."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, loss: torch.Tensor, weight: float) -> torch.Tensor:
        ctx.seed = torch.full_like(loss, weight)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return grads[0], ctx.seed, None
