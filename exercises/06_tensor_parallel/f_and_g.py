"""f and g: the two functions at the edges of every tensor-parallel block.

Notebook 06. A block's matrices are cut over the ranks of a group. Each rank computes a part of the
block, and what lies outside of the block is *replicated*: it has the same value on every rank.

    x  ->  f  ->  this rank's part of the block  ->  g  ->  y

    f  forward: every rank takes the whole x           backward: the gradients of x are summed
    g  forward: the ranks' partial results are summed  backward: every rank takes the whole gradient

Why the sum in f's backward: each rank has used x for its own part of the work, so the gradient that
comes back on one rank is only one summand of the whole gradient of x. Why none in g's: y is the sum
of the parts, so the gradient of each part is the gradient of y, which is on every rank already.
Each function is the other's mirror image; Megatron-LM calls them conjugate.

Yours: the four passes, as autograd functions. `forward(ctx, tensor, group)` may keep the group on
`ctx`; `backward(ctx, grad)` returns one gradient for each argument of forward: None for the group.

Rules

- One all-reduce (a sum, not a mean) in the right pass, nothing in the other. With S bytes that
  costs 2(N-1)/N·S a rank: f in backward alone, g in forward alone.
- The caller's tensors stay as they are, the gradient that comes in as well: `all_reduce` of
  `course_lib.comm` works in place, so give it a copy.
- Any shape, a non-contiguous tensor too; the dtype is kept. Ranks are those of `group`, which need
  not be the whole world. Both work under `torch.no_grad()`.
- Build them with `all_reduce`. `copy_to_group` and `reduce_from_group` of the library
  (`course_lib.comm.autograd`) are this pair, finished; the grader looks in the autograd graph for
  functions of the library.

Your answer may use `comm` of `course_lib`, but not `comm.copy_to_group` and
`comm.reduce_from_group`.
"""

from typing import Any

import torch

from course_lib.comm import Group, all_reduce


class F(torch.autograd.Function):
    """Replicated before, used differently on each rank after."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, group: Group) -> torch.Tensor:
        """The tensor's own values."""
        raise NotImplementedError("f_and_g: f forward")

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        """The sum of all ranks' gradients."""
        raise NotImplementedError("f_and_g: f backward")


class G(torch.autograd.Function):
    """Partial sums before, replicated after."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, group: Group) -> torch.Tensor:
        """The sum of all ranks' tensors."""
        raise NotImplementedError("f_and_g: g forward")

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        """The gradient itself."""
        raise NotImplementedError("f_and_g: g backward")


def f(tensor: torch.Tensor, group: Group) -> torch.Tensor:
    """Hands a replicated tensor to ranks that each do a part of the work with it.

    Args:
        tensor: any shape, the same on every rank.
        group: the ranks.

    Returns:
        The same values.
    """
    return F.apply(tensor, group)


def g(tensor: torch.Tensor, group: Group) -> torch.Tensor:
    """Adds up what the ranks have computed.

    Args:
        tensor: any shape, this rank's summand.
        group: the ranks.

    Returns:
        The sum, the same on every rank.
    """
    return G.apply(tensor, group)
