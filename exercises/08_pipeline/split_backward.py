"""The backward of a layer in two halves: the input's gradient now, the weights' later.

Notebook 08. Zero-bubble schedules cut a stage's backward into I and W: the rank before waits for
the gradient of the input, and nobody for those of the weights. Autograd makes both at once. Here is
a linear layer that does not:

    y = x·Wᵀ + b         forward: as always
    dx = dy·W            when autograd comes by: at once, and handed on
    dW += dyᵀ·x          later: when the schedule says so, by a function in a queue
    db += sum of dy      later, with it

Rules
- `split_linear` returns the same as `torch.nn.functional.linear`, for an x of any number of dims.
- Its backward hands on dx and appends *one* function without arguments to the list `later`.
  Neither product nor sum for the weights is computed before that function is called.
- Called, the function adds to `weight.grad` and `bias.grad`, or sets them if they are None. There
  may be several micro-batches and layers in the queue, and they may be called in any order.
- The first stage's x needs no gradient. Its weights do: the backward must come by all the same, and
  need not compute dx. (Autograd comes by if *one* input of a Function needs a gradient, so the
  weight has to be one of its inputs.)
- The weight always needs a gradient. The bias may be None.

What it costs: x and dy are held from I to W.

Free: how. The skeleton below is the plain way. What `forward` keeps in `ctx`, `backward` finds
there; and it returns a gradient for each input of `forward`, None for one that gets none from it.

Your answer may use nothing of `course_lib`.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.functional import linear


def add(leaf: torch.nn.Parameter, grad: torch.Tensor) -> None:
    """Adds to a parameter's gradient."""
    leaf.grad = grad if leaf.grad is None else leaf.grad + grad


class SplitLinear(torch.autograd.Function):
    """A linear layer whose backward leaves the weights' half to a queue."""

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        weight: torch.nn.Parameter,
        bias: torch.nn.Parameter | None,
        later: list[Callable[[], None]],
    ) -> torch.Tensor:
        """x·Wᵀ + b."""
        raise NotImplementedError("split_backward: forward")

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor | None, None, None, None]:
        """The gradient of x; those of the weights are left to a function in the queue."""
        raise NotImplementedError("split_backward: backward")


def split_linear(
    x: torch.Tensor,
    weight: torch.nn.Parameter,
    bias: torch.nn.Parameter | None,
    later: list[Callable[[], None]],
) -> torch.Tensor:
    """A linear layer whose backward is cut in two.

    Args:
        x: (..., in).
        weight: (out, in).
        bias: (out,), or None.
        later: the queue that its backward appends to.

    Returns:
        (..., out).
    """
    return SplitLinear.apply(x, weight, bias, later)
