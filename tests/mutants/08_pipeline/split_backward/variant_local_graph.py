"""variant: the weights' half is a small graph of its own; saved tensors; in-place sums"""

from collections.abc import Callable
from typing import Any

import torch


class Cut(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, weight: Any, bias: Any, later: Any) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        ctx.bias, ctx.later = bias, later
        return x @ weight.t() if bias is None else x @ weight.t() + bias

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        x, weight = ctx.saved_tensors
        leaves = [weight] if ctx.bias is None else [weight, ctx.bias]
        ctx.later.append(lambda: half(x, leaves, grads[0]))
        return (grads[0] @ weight if ctx.needs_input_grad[0] else None), None, None, None


def half(x: torch.Tensor, leaves: list[Any], dy: torch.Tensor) -> None:
    y = torch.nn.functional.linear(x.detach(), *leaves)
    y.backward(dy)


def split_linear(x: Any, weight: Any, bias: Any, later: list[Callable[[], None]]) -> torch.Tensor:
    return Cut.apply(x, weight, bias, later)
