"""Wrong and right answers to `fp8_linear`: see `course dev show fp8_linear`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("all_in_e5m2", ["x and W are in e5m2"], '''
-E4M3 = torch.float8_e4m3fn
+E4M3 = torch.float8_e5m2
'''),
    Wrong("amax_zero", ["where x is all zeros", "divided by a scale of 0"], '''
-    scale = torch.where(amax == 0, 1.0, amax / torch.finfo(dtype).max)
+    scale = amax / torch.finfo(dtype).max
'''),
    Wrong("amax_zero_inverse", ["where x is all zeros", "divided by a scale of 0"], '''
-    scale = torch.where(amax == 0, 1.0, amax / torch.finfo(dtype).max)
-    return (x.float() / scale).to(dtype), scale
+    scale = 1 / (torch.finfo(dtype).max / amax)
+    return (x.float() * (1 / scale)).to(dtype), scale
'''),
    Wrong("bias_forgotten", ["the bias is forgotten"], '''
-        if bias is not None:
-            y += bias
'''),
    Wrong("bias_gradient_always", ["returned a gradient different", "at position 3", "forward input was not a Variable"], '''
-        db = grads[0].float().flatten(0, -2).sum(0) if ctx.needs_input_grad[2] else None
+        db = grads[0].float().flatten(0, -2).sum(0)
'''),
    Wrong("bias_gradient_mean", ["this is the mean over tokens"], '''
-        db = grads[0].float().flatten(0, -2).sum(0) if ctx.needs_input_grad[2] else None
+        db = grads[0].float().flatten(0, -2).mean(0) if ctx.needs_input_grad[2] else None
'''),
    Wrong("bias_gradient_missing", ["the gradient of the bias", "None"], '''
-        db = grads[0].float().flatten(0, -2).sum(0) if ctx.needs_input_grad[2] else None
-        return dx, dw, db
+        return dx, dw, None
'''),
    Wrong("bias_gradient_of_8_bits", ["this is the sum of dy in 8 bits"], '''
-        db = grads[0].float().flatten(0, -2).sum(0) if ctx.needs_input_grad[2] else None
+        db = dy.flatten(0, -2).sum(0) if ctx.needs_input_grad[2] else None
'''),
    Wrong("cast_without_scale", ["it is always 1", "whatever the numbers are"], '''
-    scale = torch.where(amax == 0, 1.0, amax / torch.finfo(dtype).max)
+    scale = torch.ones_like(amax)
'''),
    Wrong("data_stays_float", ["quantize's data has the wrong dtype or shape"], '''
-    return (x.float() / scale).to(dtype), scale
+    return (x.float() / scale).to(dtype).float(), scale
'''),
    Wrong("flat_output", ["the output", "has the wrong dtype or shape"], '''
-        q_x, scale_x = quantize(x, E4M3)
+        q_x, scale_x = quantize(x.flatten(0, -2), E4M3)
@@
-        dw = dy.flatten(0, -2).t() @ dequantize(q_x, scale_x).flatten(0, -2)
+        dw = dy.flatten(0, -2).t() @ dequantize(q_x, scale_x)
'''),
    Wrong("gradient_has_scale_of_input", ["dy has the scale of x"], '''
-        dy = dequantize(*quantize(grads[0], E5M2))
+        dy = dequantize((grads[0].float() / scale_x).to(E5M2), scale_x)
'''),
    Wrong("gradient_in_e4m3", ["the gradient is in e4m3"], '''
-        dy = dequantize(*quantize(grads[0], E5M2))
+        dy = dequantize(*quantize(grads[0], E4M3))
'''),
    Wrong("gradient_sums_in_bf16", ["the gradient of W", "this is the error of 16 bits"], '''
-        dw = dy.flatten(0, -2).t() @ dequantize(q_x, scale_x).flatten(0, -2)
+        rows = dequantize(q_x, scale_x).flatten(0, -2).bfloat16()
+        dw = (dy.flatten(0, -2).t().bfloat16() @ rows).float()
'''),
    Wrong("gradient_unquantized", ["dy was not quantized"], '''
-        dy = dequantize(*quantize(grads[0], E5M2))
+        dy = grads[0].float()
'''),
    Wrong("gradient_without_scale", ["the gradient of x", "cast without a scale"], '''
-        dy = dequantize(*quantize(grads[0], E5M2))
+        dy = grads[0].float().to(E5M2).float()
'''),
    Wrong("half_scale", ["float16"], '''
-    amax = x.float().abs().amax()
+    amax = x.half().abs().amax()
'''),
    Wrong("keeps_decoded", ["x is kept in high precision"], '''
-        ctx.save_for_backward(q_x, scale_x, q_w, scale_w)
-        y = dequantize(q_x, scale_x) @ dequantize(q_w, scale_w).t()
+        x_again, w_again = dequantize(q_x, scale_x), dequantize(q_w, scale_w)
+        ctx.save_for_backward(x_again, w_again)
+        y = x_again @ w_again.t()
@@
-        q_x, scale_x, q_w, scale_w = ctx.saved_tensors
+        x, weight = ctx.saved_tensors
@@
-        dx = dy @ dequantize(q_w, scale_w)
-        dw = dy.flatten(0, -2).t() @ dequantize(q_x, scale_x).flatten(0, -2)
+        dx = dy @ weight
+        dw = dy.flatten(0, -2).t() @ x.flatten(0, -2)
'''),
    Wrong("keeps_input", ["x is kept in high precision"], '''
-        ctx.save_for_backward(q_x, scale_x, q_w, scale_w)
+        ctx.save_for_backward(x, q_w, scale_w)
@@
-        q_x, scale_x, q_w, scale_w = ctx.saved_tensors
+        x, q_w, scale_w = ctx.saved_tensors
+        q_x, scale_x = quantize(x, E4M3)
'''),
    Wrong("largest_not_magnitude", ["the largest number was taken", "not the largest magnitude"], '''
-    amax = x.float().abs().amax()
+    amax = x.float().amax()
'''),
    Wrong("largest_of_e4m3", ["448 is the largest number of e4m3"], '''
-    scale = torch.where(amax == 0, 1.0, amax / torch.finfo(dtype).max)
+    scale = torch.where(amax == 0, 1.0, amax / 448)
'''),
    Wrong("multiplied", ["multiplied by the scale"], '''
-    return (x.float() / scale).to(dtype), scale
+    return (x.float() * scale).to(dtype), scale
'''),
    Wrong("one_scale", ["the output", "one scale for all tensors"], '''
-        q_w, scale_w = quantize(weight, E4M3)
+        _, scale_w = quantize(weight, E4M3)
+        scale_x = scale_w = torch.maximum(scale_x, scale_w)
+        q_x, q_w = (x.float() / scale_x).to(E4M3), (weight.float() / scale_w).to(E4M3)
'''),
    Wrong("only_backward", ["the output", "this product was computed from unquantized numbers"], '''
-        y = dequantize(q_x, scale_x) @ dequantize(q_w, scale_w).t()
+        y = x.float() @ weight.float().t()
'''),
    Wrong("only_contiguous", ["view size is not compatible"], '''
-        q_x, scale_x = quantize(x, E4M3)
+        q_x, scale_x = quantize(x.view(-1, x.shape[-1]), E4M3)
@@
-        return y.to(x.dtype)
+        return y.to(x.dtype).view(*x.shape[:-1], -1)
@@
-        dw = dy.flatten(0, -2).t() @ dequantize(q_x, scale_x).flatten(0, -2)
+        dw = dy.flatten(0, -2).t() @ dequantize(q_x, scale_x)
'''),
    Wrong("only_forward", ["the gradient of x", "the gradient of W", "unquantized numbers"], '''
-        ctx.save_for_backward(q_x, scale_x, q_w, scale_w)
+        ctx.save_for_backward(x, weight)
@@
-        q_x, scale_x, q_w, scale_w = ctx.saved_tensors
-        dy = dequantize(*quantize(grads[0], E5M2))
-        dx = dy @ dequantize(q_w, scale_w)
-        dw = dy.flatten(0, -2).t() @ dequantize(q_x, scale_x).flatten(0, -2)
+        x, weight = ctx.saved_tensors
+        dy = grads[0].float()
+        dx = dy @ weight.float()
+        dw = dy.flatten(0, -2).t() @ x.float().flatten(0, -2)
'''),
    Wrong("only_matrices", ["expects a tensor with <= 2 dimensions"], '''
-        dw = dy.flatten(0, -2).t() @ dequantize(q_x, scale_x).flatten(0, -2)
+        dw = torch.mm(dy.t(), dequantize(q_x, scale_x))
'''),
    Wrong("output_in_float32", ["the output (B×T×K", "x in bf16) has the wrong dtype or shape"], '''
-        return y.to(x.dtype)
+        return y
'''),
    Wrong("scale_inverted", ["the scale is inverted"], '''
-    scale = torch.where(amax == 0, 1.0, amax / torch.finfo(dtype).max)
-    return (x.float() / scale).to(dtype), scale
+    scale = torch.where(amax == 0, 1.0, torch.finfo(dtype).max / amax)
+    return (x.float() * scale).to(dtype), scale
'''),
    Wrong("scale_per_row", ["quantize's scale has the wrong dtype or shape"], '''
-    amax = x.float().abs().amax()
+    amax = x.float().abs().amax(-1, keepdim=True)
'''),
    Wrong("sums_in_bf16", ["this is the error of 16 bits"], '''
-        y = dequantize(q_x, scale_x) @ dequantize(q_w, scale_w).t()
+        y = (q_x.bfloat16() @ q_w.bfloat16().t()).float() * (scale_x * scale_w)
@@
-        dx = dy @ dequantize(q_w, scale_w)
+        dx = (dy.bfloat16() @ dequantize(q_w, scale_w).bfloat16()).float()
'''),
    Wrong("weight_gradient_unquantized", ["the gradient of W", "unquantized numbers"], '''
-        ctx.save_for_backward(q_x, scale_x, q_w, scale_w)
+        ctx.save_for_backward(x, q_w, scale_w)
@@
-        q_x, scale_x, q_w, scale_w = ctx.saved_tensors
+        x, q_w, scale_w = ctx.saved_tensors
@@
-        dw = dy.flatten(0, -2).t() @ dequantize(q_x, scale_x).flatten(0, -2)
+        dw = grads[0].float().flatten(0, -2).t() @ x.float().flatten(0, -2)
'''),
    Wrong("weight_unquantized", ["W was not quantized"], '''
-        ctx.save_for_backward(q_x, scale_x, q_w, scale_w)
+        ctx.save_for_backward(q_x, scale_x, weight)
@@
-        q_x, scale_x, q_w, scale_w = ctx.saved_tensors
+        q_x, scale_x, weight = ctx.saved_tensors
@@
-        dx = dy @ dequantize(q_w, scale_w)
+        dx = dy @ weight.float()
'''),
]

RIGHT = [
    Right("variant_einsum", "einsum over any number of dims, clamped before the cast", '''
from typing import Any

import torch

E4M3 = torch.float8_e4m3fn
E5M2 = torch.float8_e5m2


def quantize(x: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Makes a tensor 8-bit numbers and one scale."""
    amax = x.float().abs().amax()
    scale = torch.where(amax == 0, 1.0, amax / torch.finfo(dtype).max)
    most = torch.finfo(dtype).max
    return (x.float() / scale).clamp(-most, most).to(dtype), scale


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
        y = torch.einsum("...k,nk->...n", dequantize(q_x, scale_x), dequantize(q_w, scale_w))
        if bias is not None:
            y += bias
        return y.to(x.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        """The gradients of x, weight and bias (None without), from that of the output."""
        q_x, scale_x, q_w, scale_w = ctx.saved_tensors
        dy = dequantize(*quantize(grads[0], E5M2))
        dx = dy @ dequantize(q_w, scale_w)
        dw = torch.einsum("...n,...k->nk", dy, dequantize(q_x, scale_x))
        db = grads[0].float().flatten(0, -2).sum(0) if ctx.needs_input_grad[2] else None
        return dx, dw, db


def fp8_linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """A linear layer whose three products are made of 8-bit numbers."""
    y: torch.Tensor = Fp8Linear.apply(x, weight, bias)
    return y
'''),
    Right("variant_reciprocal", "multiplies by the reciprocal, and scales products of bare 8-bit numbers at the end", '''
from typing import Any

import torch

E4M3 = torch.float8_e4m3fn
E5M2 = torch.float8_e5m2


def quantize(x: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Makes a tensor 8-bit numbers and one scale."""
    amax = x.float().abs().amax()
    scale = torch.where(amax == 0, 1.0, amax / torch.finfo(dtype).max)
    return (x.float() * (1 / scale)).to(dtype), scale


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
        y = q_x.float() @ q_w.float().t() * (scale_x * scale_w)
        if bias is not None:
            y += bias
        return y.to(x.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        """The gradients of x, weight and bias (None without), from that of the output."""
        q_x, scale_x, q_w, scale_w = ctx.saved_tensors
        q_g, scale_g = quantize(grads[0], E5M2)
        dx = q_g.float() @ q_w.float() * (scale_g * scale_w)
        dw = q_g.float().flatten(0, -2).t() @ q_x.float().flatten(0, -2) * (scale_g * scale_x)
        db = grads[0].float().flatten(0, -2).sum(0) if ctx.needs_input_grad[2] else None
        return dx, dw, db


def fp8_linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """A linear layer whose three products are made of 8-bit numbers."""
    y: torch.Tensor = Fp8Linear.apply(x, weight, bias)
    return y
'''),
    Right("variant_scaled_mm", "torch's own product of 8-bit numbers", '''
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
'''),
    Right("variant_tiny_amax", "amax is held above a tiny number; the weight is quantized again in backward", '''
from typing import Any

import torch

E4M3 = torch.float8_e4m3fn
E5M2 = torch.float8_e5m2


def quantize(x: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Makes a tensor 8-bit numbers and one scale."""
    amax = x.float().abs().amax()
    scale = amax.clamp(min=1e-12) / torch.finfo(dtype).max
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
        ctx.save_for_backward(q_x, scale_x, weight)
        y = dequantize(q_x, scale_x) @ dequantize(q_w, scale_w).t()
        if bias is not None:
            y += bias
        return y.to(x.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        """The gradients of x, weight and bias (None without), from that of the output."""
        q_x, scale_x, weight = ctx.saved_tensors
        q_w, scale_w = quantize(weight, E4M3)
        dy = dequantize(*quantize(grads[0], E5M2))
        dx = dy @ dequantize(q_w, scale_w)
        dw = dy.flatten(0, -2).t() @ dequantize(q_x, scale_x).flatten(0, -2)
        db = grads[0].float().flatten(0, -2).sum(0) if ctx.needs_input_grad[2] else None
        return dx, dw, db


def fp8_linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """A linear layer whose three products are made of 8-bit numbers."""
    y: torch.Tensor = Fp8Linear.apply(x, weight, bias)
    return y
'''),
]
