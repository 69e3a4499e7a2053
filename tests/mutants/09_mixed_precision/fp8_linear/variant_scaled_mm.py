"""variant: torch's own product of 8-bit numbers"""

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


def multiplied(
    a: torch.Tensor, scale_a: torch.Tensor, b: torch.Tensor, scale_b: torch.Tensor
) -> torch.Tensor:
    """The product a · bᵀ in float32."""
    return torch._scaled_mm(
        a.contiguous(),
        b.contiguous().t(),
        scale_a=scale_a,
        scale_b=scale_b,
        out_dtype=torch.float32,
    )


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
        y = multiplied(q_x.flatten(0, -2), scale_x, q_w, scale_w).view(*x.shape[:-1], -1)
        if bias is not None:
            y += bias
        return y.to(x.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        """The gradients of x, weight and bias (None without), from that of the output."""
        q_x, scale_x, q_w, scale_w = ctx.saved_tensors
        q_g, scale_g = quantize(grads[0].flatten(0, -2), E5M2)
        dx = multiplied(q_g, scale_g, q_w.t(), scale_w).view(q_x.shape)
        dw = multiplied(q_g.t(), scale_g, q_x.flatten(0, -2).t(), scale_x)
        db = grads[0].float().flatten(0, -2).sum(0) if ctx.needs_input_grad[2] else None
        return dx, dw, db


def fp8_linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """A linear layer whose three products are made of 8-bit numbers."""
    y: torch.Tensor = Fp8Linear.apply(x, weight, bias)
    return y
