"""The backward of a layer in two halves: the input's gradient now, the weights' later.

Notebook 08. Zero-bubble schedules cut a stage's backward into I and W: the previous rank waits for
the gradient of the input, but nobody waits for those of the weights. Autograd computes both at
once. Here is a linear layer that does not:

    y = x·Wᵀ + b         in forward, as always
    dx = dy·W            in backward, at once, and returned to autograd
    dW += dyᵀ·x          later, when the schedule says so, by a function in a queue
    db += sum of dy      later, by the same function

Rules
- `split_linear` returns the same as `torch.nn.functional.linear`, for an x of any number of dims
  from one on. x and dy need not be contiguous.
- Its backward returns dx and appends *one* function without arguments to the list `later`. Neither
  the product nor the sum for the weights is computed before that function is called.
- When it is called, the function adds to `weight.grad` and `bias.grad`, or sets them if they are
  None. The queue may hold functions of several micro-batches and layers, called in any order.
- The first stage's x needs no gradient, but its weights do: autograd must still call the backward,
  which need not compute dx then. (Autograd calls it if *one* input of the Function needs a
  gradient, so the weight must be one of its inputs.)
- The weight always needs a gradient. The bias may be None.

The cost: x and dy are held from I to W, and no longer. The function runs outside of any backward,
where autograd records what is computed: without `torch.no_grad()`, `weight.grad` would have a graph
of its own, which holds x.

You may write this in any way; the skeleton below is the simplest. `backward` finds in `ctx` what
`forward` has kept there, and returns one value for each input of `forward`: its gradient, or None
for an input that gets no gradient from it.
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
        """Returns x·Wᵀ + b."""
        # BEGIN SOLUTION: forward
        ctx.kept = x, weight, bias, later
        return linear(x, weight, bias)
        # END SOLUTION

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor | None, None, None, None]:
        """Returns the gradient of x, and leaves those of the weights to a function in the queue."""
        # BEGIN SOLUTION: backward
        x, weight, bias, later = ctx.kept

        @torch.no_grad()  # else the gradients' graphs would hold x and dy
        def weights_half() -> None:
            rows = dy.reshape(-1, dy.shape[-1])
            add(weight, rows.t() @ x.reshape(-1, x.shape[-1]))
            if bias is not None:
                add(bias, rows.sum(0))

        later.append(weights_half)
        return dy @ weight if ctx.needs_input_grad[0] else None, None, None, None
        # END SOLUTION


def split_linear(
    x: torch.Tensor,
    weight: torch.nn.Parameter,
    bias: torch.nn.Parameter | None,
    later: list[Callable[[], None]],
) -> torch.Tensor:
    """A linear layer whose backward is cut in two.

    Args:
        x: [..., in].
        weight: [out, in].
        bias: [out], or None.
        later: the queue to which its backward appends.

    Returns:
        [..., out].
    """
    return SplitLinear.apply(x, weight, bias, later)
