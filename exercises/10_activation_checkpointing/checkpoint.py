"""Activation checkpointing: keep a block's inputs, and compute its activations again in backward.

Notebook 10. Autograd saves what each operation's backward will need. In a stack of blocks all of
that is there at the end of forward. A checkpointed block saves its inputs alone. When its backward
comes, it runs once more, this time with autograd watching, and is differentiated at once. So a
stack of L blocks holds L inputs and one block's activations, and pays one forward more.

    x = checkpoint(block, x, mask, 0.1)     instead of     x = block(x, mask, 0.1)

Yours: the forward and the backward of an autograd function that does this. In such a `forward`
autograd does not watch: nothing inside is saved. `ctx` carries what you put on it to `backward`;
for tensors there is `ctx.save_for_backward`, and `ctx.saved_tensors` gives them back. `backward`
gets the output's gradient, and returns one gradient for each argument of `forward`, in order.

Rules
- `fn` returns one tensor, and does the same when it is called again with the same arguments. It is
  called once in forward and once in a backward. (A backward may come twice, with `retain_graph`.)
- Arguments are tensors and anything else, in any order. Tensors may need a gradient or not, and
  may be of integers; the same one may come twice. What is no tensor has the gradient None.
- Parameters inside `fn` are no arguments, and get their gradients all the same: a call of
  `torch.autograd.backward(output, gradient)` adds them to `.grad`. An input must be cut off from
  the graph that it came from (`detach`), or that call goes on into the blocks before.
- A second run must draw the same random numbers, or dropout has another mask. The default
  generator's state is `torch.get_rng_state()`, a tensor; `torch.set_rng_state(state)` brings it
  back. Whoever draws outside never notices that there was a second run.
- It must compute in the same precision too: backward mostly comes after `torch.autocast` has ended.
  `torch.is_autocast_enabled("cpu")` and `torch.get_autocast_dtype("cpu")` say what is on, and
  `torch.autocast("cpu", dtype=..., enabled=...)` is a context that turns it on or off.
- After a block's backward nothing of the second run stays.

A backward inside a backward is the classic form (PyTorch calls it re-entrant). What wraps a model,
such as DDP, may take the end of the inner one for the end of all, and `torch.autograd.grad` cannot
ask for the parameters. So `course_lib.recompute` does it otherwise: the block's own graph stays,
each tensor saved in it is replaced by a number, and the first number that backward asks for runs
the block again and fills in all. Then there is one backward, as if nothing had been forgotten.

Your answer may use nothing of `course_lib`; of torch everything but
`torch.utils.checkpoint.checkpoint`.
"""

from collections.abc import Callable
from typing import Any

import torch


class Checkpoint(torch.autograd.Function):
    """A call of a function as one operation, which saves nothing but the function's inputs."""

    @staticmethod
    def forward(
        ctx: Any, token: torch.Tensor, fn: Callable[..., torch.Tensor], *args: Any
    ) -> torch.Tensor:
        """`fn(*args)`; `ctx` keeps what the second run needs."""
        raise NotImplementedError("checkpoint: the first run")

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        """None for `token` and `fn`, and a gradient or None for each of `args`."""
        raise NotImplementedError("checkpoint: the second run, and its backward")


def checkpoint(fn: Callable[..., torch.Tensor], *args: Any) -> torch.Tensor:
    """`fn(*args)`, of which only the inputs are kept until backward.

    Autograd runs the backward of an operation only if one of its inputs needs a gradient. The
    first block's is data, which needs none, but the block's parameters do: so a token that needs
    one goes in as well.
    """
    output: torch.Tensor = Checkpoint.apply(torch.empty(0, requires_grad=True), fn, *args)
    return output
