"""f and g: the two functions at the edges of every tensor-parallel block.

Notebook 06. A block's matrices are cut over the ranks of a group, and each rank computes a part of
the block. Outside the block, tensors are *replicated*: they have the same value on every rank.

    x  ->  f  ->  this rank's part of the block  ->  g  ->  y

    f  forward: every rank takes the whole x           backward: the gradients of x are summed
    g  forward: the ranks' partial results are summed  backward: every rank takes the whole gradient

f's backward needs a sum because each rank has used x for its own part of the work: the gradient
that a rank computes is only one summand of the whole gradient of x. g's backward needs none because
y is the sum of the parts: the gradient of each part is the gradient of y, which every rank has
already. Each function is the other's mirror image; Megatron-LM calls them conjugate.

Write the four passes, as autograd functions. `forward(ctx, tensor, group)` may keep the group on
`ctx`; `backward(ctx, grad)` returns one gradient for each argument of forward, None for the group.

Rules

- Make one all-reduce (a sum, not a mean) in the pass that needs it, and none in the other. For a
  tensor of S bytes each rank sends 2(N-1)/N·S: f only in backward, g only in forward.
- The caller's tensors must not be changed, nor the incoming gradient: `all_reduce` of
  `course_lib.comm` works in place, so give it a copy.
- The tensor may have any shape and be non-contiguous, and its dtype is kept. The ranks are those of
  `group`, which need not be the whole world. Both functions work under `torch.no_grad()`.
- Build them with `all_reduce`. The library's `copy_to_group` and `reduce_from_group` are this pair,
  finished; the grader looks for functions of the library in the autograd graph.
"""

from typing import Any

import torch

from course_lib.comm import Group, all_reduce


class F(torch.autograd.Function):
    """Takes a replicated tensor to ranks that use it in different ways."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, group: Group) -> torch.Tensor:
        """Returns the tensor's own values."""
        # BEGIN SOLUTION: f forward
        ctx.group = group
        return tensor.view_as(tensor)
        # END SOLUTION

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        """Returns the sum of all ranks' gradients, and None."""
        # BEGIN SOLUTION: f backward
        total = grad.clone()
        all_reduce(total, ctx.group)
        return total, None
        # END SOLUTION


class G(torch.autograd.Function):
    """Takes the ranks' partial sums to a replicated tensor."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, group: Group) -> torch.Tensor:
        """Returns the sum of all ranks' tensors."""
        # BEGIN SOLUTION: g forward
        total = tensor.clone()
        all_reduce(total, group)
        return total
        # END SOLUTION

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        """Returns the gradient itself, and None."""
        # BEGIN SOLUTION: g backward
        return grad, None
        # END SOLUTION


def f(tensor: torch.Tensor, group: Group) -> torch.Tensor:
    """Passes a replicated tensor on to ranks that each do a part of the work with it.

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
