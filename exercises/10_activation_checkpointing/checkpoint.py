"""Activation checkpointing: keep a block's inputs, and compute its activations again in backward.

Notebook 10. Autograd saves what each operation's backward will need. At the end of a stack's
forward, all of that is in memory. A checkpointed block saves only its inputs. When its backward
comes, the block runs once more, this time with autograd recording, and is differentiated at once.
So a stack of L blocks holds L inputs and one block's activations, at the price of one more forward.

    x = checkpoint(block, x, mask, 0.1)     instead of     x = block(x, mask, 0.1)

You write the forward and the backward of an autograd function that does this. In such a `forward`,
autograd does not record: nothing inside is saved. `ctx` carries what you put on it to `backward`.
Store tensors with `ctx.save_for_backward`, and get them back from `ctx.saved_tensors`: this raises
a RuntimeError if one has been changed since. `backward` gets the output's gradient, and returns one
gradient for each argument of `forward`, in order.

Rules
- `fn` returns one tensor, and returns the same when it is called again with the same arguments.
  Call it once in forward and once in each backward. (A backward may come twice, with
  `retain_graph`.)
- Arguments are tensors and anything else, in any order. Tensors may need a gradient or not, and may
  hold integers; the same tensor may occur twice. An argument that is not a tensor has the gradient
  None.
- Parameters inside `fn` are not arguments, but they must get their gradients too: a call of
  `torch.autograd.backward(output, gradient)` adds them to `.grad`. Detach each input from the graph
  that it came from, or that call continues into earlier blocks.
- The second run must draw the same random numbers, or dropout has a different mask. The default
  generator's state is `torch.get_rng_state()`, a tensor; `torch.set_rng_state(state)` restores it.
  The second run must not affect random numbers that are drawn outside of it.
- It must also compute in the same precision: backward usually runs after `torch.autocast` has
  ended. `torch.is_autocast_enabled("cpu")` and `torch.get_autocast_dtype("cpu")` say what is on,
  and `torch.autocast("cpu", dtype=..., enabled=...)` is a context that turns it on or off.
- After a block's backward, nothing of the second run stays in memory.

A backward inside a backward is the classic form (PyTorch calls it re-entrant). A wrapper such as
DDP may mistake the end of the inner backward for the end of the whole, and `torch.autograd.grad`
cannot ask for the parameters. So `course_lib.recompute` works differently: it keeps the block's own
graph and replaces each tensor saved in it by a number. When backward asks for the first number, the
block runs again and fills in all tensors. Then there is only one backward, as without
checkpointing.

Your answer may use nothing of `course_lib`; of torch everything but
`torch.utils.checkpoint.checkpoint`.
"""

from collections.abc import Callable
from typing import Any

import torch


class Checkpoint(torch.autograd.Function):
    """A call of a function as one operation, which saves only the function's inputs."""

    @staticmethod
    def forward(
        ctx: Any, token: torch.Tensor, fn: Callable[..., torch.Tensor], *args: Any
    ) -> torch.Tensor:
        """Returns `fn(*args)`; `ctx` keeps what the second run needs."""
        raise NotImplementedError("checkpoint: the first run")

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        """Returns None for `token` and `fn`, and a gradient or None for each of `args`."""
        raise NotImplementedError("checkpoint: the second run, and its backward")


def checkpoint(fn: Callable[..., torch.Tensor], *args: Any) -> torch.Tensor:
    """Returns `fn(*args)`, and keeps only its inputs until backward.

    Autograd runs the backward of an operation only if one of its inputs needs a gradient. The first
    block's input is data and needs none, but the block's parameters do. So a token that needs a
    gradient is passed in as well.
    """
    output: torch.Tensor = Checkpoint.apply(torch.empty(0, requires_grad=True), fn, *args)
    return output
