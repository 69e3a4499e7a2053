"""The peer of `fp8_linear`: the same three products, made by torch's `_scaled_mm`."""

from __future__ import annotations

from typing import Any

import torch


class TorchFp8(torch.autograd.Function):
    """A linear layer without a bias; current scaling, E4M3, and E5M2 for the gradient."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """The product of x and the transposed weight."""
        q_x, q_w = _scaled(x, torch.float8_e4m3fn), _scaled(weight, torch.float8_e4m3fn)
        ctx.save_for_backward(*q_x, *q_w)
        return _product(q_x, q_w)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Gradients of x and of the weight."""
        x, x_scale, weight, w_scale = ctx.saved_tensors
        g, g_scale = _scaled(grads[0], torch.float8_e5m2)
        grad_x = _product((g, g_scale), (weight.t(), w_scale))
        return grad_x, _product((g.t(), g_scale), (x.t(), x_scale))


def _scaled(x: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    scale = x.abs().max() / torch.finfo(dtype).max
    return (x / scale).to(dtype), scale


def _product(a: tuple[torch.Tensor, torch.Tensor], b: tuple[torch.Tensor, torch.Tensor]) -> Any:
    """Of a and the transposed b; the kernel wants one of them by rows and the other by columns."""
    rows, columns = a[0].contiguous(), b[0].contiguous().t()
    return torch._scaled_mm(rows, columns, scale_a=a[1], scale_b=b[1], out_dtype=torch.float32)
