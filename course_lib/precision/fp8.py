"""A linear layer whose three products are of 8-bit or 4-bit numbers; weights stay as they are.

Notebook: 09 Mixed precision and FP8 (fp8_linear).
Paper: Micikevicius et al., "FP8 Formats for Deep Learning" (2022), sections 3 and 4; Peng et al.,
"FP8-LM" (2023), section 2.
Costs no message of its own (delayed scaling: see `recipes`). The input is kept for the backward in
1 byte a number, where bfloat16 keeps 2; the weight is quantized in forward and in backward.
The production version (Transformer Engine, torchao) keeps the quantized weight over micro-batches.

Shapes: T tokens (all leading dims together), K inputs, N outputs.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import nn

from course_lib.precision.fp8_matmul import scaled_matmul
from course_lib.precision.recipes import CurrentScaling, Recipe, Scalers
from course_lib.precision.scaling import Scaled
from course_lib.trace import Refusal


def fp8_linear(
    x: torch.Tensor,
    weight_NK: torch.Tensor,
    bias_N: torch.Tensor | None = None,
    scalers: Scalers | None = None,
) -> torch.Tensor:
    """Computes x · weightᵀ + bias; all three products are of narrow numbers, sums of float32.

    Args:
        x: [..., K], floats.
        weight_NK: floats; its gradient has its dtype.
        bias_N: added in the dtype of the output.
        scalers: of the input, the weight and the output's gradient; current scaling if None.

    Returns:
        [..., N] in the dtype of x.
    """
    scalers = scalers or CurrentScaling().scalers()
    out = _Product.apply(x.reshape(-1, x.shape[-1]), weight_NK, scalers)
    out = out.view(*x.shape[:-1], weight_NK.shape[0])
    return out if bias_N is None else out + bias_N.to(out.dtype)


class _Product(torch.autograd.Function):
    """The three products: y = x·Wᵀ, dx = dy·W, dW = dyᵀ·x, each over the last dim of both."""

    @staticmethod
    def forward(
        ctx: Any, x_TK: torch.Tensor, weight_NK: torch.Tensor, scalers: Scalers
    ) -> torch.Tensor:
        q_x_TK, q_x_KT = scalers.input(x_TK)
        q_w_NK, _ = scalers.weight(weight_NK)
        # The weight itself costs nothing to keep, and FSDP may free and gather it meanwhile.
        ctx.save_for_backward(weight_NK, q_x_KT.data, q_x_KT.scale, q_x_KT.outer)
        ctx.scalers, ctx.block, ctx.dtype = scalers, q_x_KT.block, x_TK.dtype
        return scaled_matmul(q_x_TK, q_w_NK).to(x_TK.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        weight_NK, x_data, x_scale, x_outer = ctx.saved_tensors
        q_g_TN, q_g_NT = ctx.scalers.gradient(grads[0])
        grad_x = grad_weight = None
        if ctx.needs_input_grad[0]:
            _, q_w_KN = ctx.scalers.weight(weight_NK)
            grad_x = scaled_matmul(q_g_TN, q_w_KN).to(ctx.dtype)
        if ctx.needs_input_grad[1]:
            q_x_KT = Scaled(x_data, x_scale, ctx.block, x_outer)
            grad_weight = scaled_matmul(q_g_NT, q_x_KT).to(weight_NK.dtype)
        return grad_x, grad_weight, None


class Fp8Linear(nn.Module):
    """A linear layer that computes as `fp8_linear`, with the parameters of a given one.

    Args:
        linear: the layer; weight and bias are taken over, not copied, under the same names.
        recipe: how tensors are scaled.
    """

    def __init__(self, linear: nn.Linear, recipe: Recipe) -> None:
        super().__init__()
        self.weight, self.bias = linear.weight, linear.bias
        self.scalers = recipe.scalers()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., K] to [..., N]."""
        return fp8_linear(x, self.weight, self.bias, self.scalers)


def fp8_linears(module: nn.Module, recipe: Recipe, keep: Collection[str] = ()) -> list[str]:
    """Replaces the linear layers inside a module, in place; optimizers need not be told.

    Args:
        module: whose submodules are looked through.
        recipe: how tensors are scaled.
        keep: names of linear layers to leave alone, as `named_modules` gives them. The output
            layer of a language model belongs there: its errors go straight into the loss.

    Returns:
        The names of the layers that were replaced, in the module's order.

    Raises:
        Refusal: `keep` names what is no linear layer here.
    """
    every = module.named_modules(remove_duplicate=False)  # a layer may stand in two places
    linears = {name: m for name, m in every if name and type(m) is nn.Linear}
    unknown = sorted(set(keep) - set(linears))
    if unknown:
        raise Refusal(
            f"keep the linear layers {', '.join(unknown)}",
            f"a {type(module).__name__} with {len(linears)} linear layers",
            f"their names are {', '.join(linears) or 'none'}",
        )
    for name in keep:
        del linears[name]
    made = {linear: Fp8Linear(linear, recipe) for linear in dict.fromkeys(linears.values())}
    for name, linear in linears.items():
        parent, _, child = name.rpartition(".")
        setattr(module.get_submodule(parent), child, made[linear])
    return list(linears)
