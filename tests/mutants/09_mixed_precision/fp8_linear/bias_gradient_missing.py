"""mutant: the gradient of the bias, None"""

from typing import Any

import torch

E4M3 = torch.float8_e4m3fn
E5M2 = torch.float8_e5m2


def quantize(x: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Makes a tensor 8-bit numbers and one scale."""
    amax = x.float().abs().amax()
    scale = torch.where(amax == 0, 1.0, amax / torch.finfo(dtype).max)
    return (x.float() / scale).to(dtype), scale


def dequantize(data: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """The float32 numbers that are meant."""
    return data.float() * scale


class Fp8Linear(torch.autograd.Function):
    """x · Wᵀ + b as one operation."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        """[..., K] to [..., N]; `weight` is [N, K], `bias` [N] or None."""
        q_x, scale_x = quantize(x, E4M3)
        q_w, scale_w = quantize(weight, E4M3)
        ctx.save_for_backward(q_x, scale_x, q_w, scale_w)
        y = dequantize(q_x, scale_x) @ dequantize(q_w, scale_w).t()
        if bias is not None:
            y += bias
        return y.to(x.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        """The gradients of x, weight and bias (None without), from that of the output."""
        q_x, scale_x, q_w, scale_w = ctx.saved_tensors
        dy = dequantize(*quantize(grads[0], E5M2))
        dx = dy @ dequantize(q_w, scale_w)
        dw = dy.flatten(0, -2).t() @ dequantize(q_x, scale_x).flatten(0, -2)
        return dx, dw, None


def fp8_linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """A linear layer whose three products are made of 8-bit numbers."""
    y: torch.Tensor = Fp8Linear.apply(x, weight, bias)
    return y
