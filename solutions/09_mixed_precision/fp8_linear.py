"""A linear layer with 8-bit products: e4m3 in forward, e5m2 for gradients, one scale per tensor.

Notebook 09. An 8-bit number has little range: e4m3 ends at 448 and has nothing between 0 and 0.002,
while gradients may be 1e-7. So a tensor is stored as 8-bit numbers and one float32, its scale:

    number ≈ 8-bit number · scale        scale = largest magnitude of the tensor / largest number

where the largest number is that of the format: 448 in e4m3, 57344 in e5m2. So the tensor's largest
magnitude becomes the format's largest number. This is *current scaling*: each tensor's scale is
computed from the tensor itself when it is needed. Inputs and weights are e4m3, which has more
precision; gradients are e5m2, which has more range.

A linear layer consists of three products, and all three can run on 8-bit units:

    y = x · Wᵀ + b       from x and W in e4m3
    dx = dy · W          from dy in e5m2, and W as in forward
    dW = dyᵀ · x         from the same 8-bit dy, and x as in forward

You write `quantize`, and forward and backward of an autograd function. `ctx` carries what you put
on it from one to the other; store tensors with `ctx.save_for_backward`, and get them back from
`ctx.saved_tensors`. `backward` gets dy, and returns a gradient for each argument of `forward`.

Rules
- `quantize` returns (data, scale): data has x's shape and the given dtype, and scale is a float32
  tensor without dims. Compute in float32: divide by the scale, then cast, which rounds to nearest.
  The scale of a tensor of zeros is 1.
- Compute the products from dequantized 8-bit numbers, in float32: a GPU's 8-bit units also sum in
  float32. Any of x, W and b may be bf16. Only results are cast: y to the dtype of x. (A gradient of
  float32 is cast to the dtype of its tensor by autograd.)
- The bias is never quantized: it is added to the product in float32, and its gradient is the sum of
  dy itself over all tokens. It may be None; then its gradient is None.
- x is [..., K] with one or more leading dims, which together are tokens. x and dy need not be
  contiguous.
- Between forward and backward, keep at most one byte for each number of x and of W, and the scales.
"""

from typing import Any

import torch

E4M3 = torch.float8_e4m3fn
E5M2 = torch.float8_e5m2


def quantize(x: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Converts a tensor to 8-bit numbers and one scale.

    Args:
        x: floats of any shape.
        dtype: E4M3 or E5M2; `torch.finfo(dtype).max` is its largest number.

    Returns:
        The 8-bit numbers, in x's shape, and their scale, float32 without dims.
    """
    # BEGIN SOLUTION: quantize
    amax = x.float().abs().amax()
    scale = torch.where(amax == 0, 1.0, amax / torch.finfo(dtype).max)
    return (x.float() / scale).to(dtype), scale
    # END SOLUTION


def dequantize(data: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Returns the float32 numbers that data and scale stand for."""
    return data.float() * scale


class Fp8Linear(torch.autograd.Function):
    """x · Wᵀ + b as one operation."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        """[..., K] to [..., N]; `weight` is [N, K], `bias` [N] or None."""
        # BEGIN SOLUTION: forward
        q_x, scale_x = quantize(x, E4M3)
        q_w, scale_w = quantize(weight, E4M3)
        ctx.save_for_backward(q_x, scale_x, q_w, scale_w)
        y = dequantize(q_x, scale_x) @ dequantize(q_w, scale_w).t()
        if bias is not None:
            y += bias
        return y.to(x.dtype)
        # END SOLUTION

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        """Returns the gradients of x, weight and bias (or None); `grads[0]` is dy, [..., N]."""
        # BEGIN SOLUTION: backward
        q_x, scale_x, q_w, scale_w = ctx.saved_tensors
        dy = dequantize(*quantize(grads[0], E5M2))
        dx = dy @ dequantize(q_w, scale_w)
        dw = dy.flatten(0, -2).t() @ dequantize(q_x, scale_x).flatten(0, -2)
        db = grads[0].float().flatten(0, -2).sum(0) if ctx.needs_input_grad[2] else None
        return dx, dw, db
        # END SOLUTION


def fp8_linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """Applies a linear layer whose three products use 8-bit numbers.

    Args:
        x: [..., K].
        weight: [N, K].
        bias: [N], or None.

    Returns:
        [..., N] in the dtype of x.
    """
    y: torch.Tensor = Fp8Linear.apply(x, weight, bias)
    return y
