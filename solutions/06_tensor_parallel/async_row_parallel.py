"""A row-parallel product in pieces: each piece's message travels during the next product.

Notebook 06. A rank has some of the inputs of a linear layer, so its product is one summand of the
result, and an all-reduce adds the summands up. The sum is independent for each token, so the
product can be cut into pieces of some tokens each:

    product 0 │ product 1    │ product 2    │
              │ all-reduce 0 │ all-reduce 1 │ all-reduce 2 │

Rules, for x [T, I_r], this rank's inputs of T tokens, and weight [O, I_r]:

- Cut x along the tokens as `torch.tensor_split` does. T need not be a multiple of the number of
  pieces, but there are at least as many tokens as pieces.
- Compute each product with `multiply(piece, weight)`, once for each piece and in order. It returns
  `piece · weightᵀ` in a new tensor. (The grader uses it to record when each product begins.)
- Start the all-reduce of a piece before the next product, and do not wait for any of them while
  products are left. Wait for all of them before the function returns: nobody may read a tensor
  whose all-reduce is still under way.
- The result [T, O] is the sum over the ranks, the same on every rank. It costs 2(N-1)/N·S bytes in
  all, with S the bytes of the result, in as many all-reduces as there are pieces.
- Each rank gets the gradients of its own x and weight, as in one process with the whole result. All
  ranks have the same result, so they also have the same gradient of it: backward sends nothing.
- x, weight and the incoming gradient must not be changed.
"""

from collections.abc import Callable
from typing import Any

import torch

from course_lib.comm import Group, all_reduce

Multiply = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class InPieces(torch.autograd.Function):
    """The sum over the ranks of x · weightᵀ."""

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        weight: torch.Tensor,
        pieces: int,
        multiply: Multiply,
        group: Group,
    ) -> torch.Tensor:
        """[T, I_r] and [O, I_r] to [T, O]."""
        # BEGIN SOLUTION: forward
        ctx.save_for_backward(x, weight)
        parts, works = [], []
        for piece in x.tensor_split(pieces):
            part = multiply(piece, weight)
            works.append(all_reduce(part, group, async_op=True))
            parts.append(part)
        for work in works:
            work.wait()
        return torch.cat(parts)
        # END SOLUTION

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        """Returns one gradient for each argument of forward; None for those that have none."""
        # BEGIN SOLUTION: backward
        x, weight = ctx.saved_tensors
        return grad @ weight, grad.mT @ x, None, None, None
        # END SOLUTION


def async_row_parallel(
    x: torch.Tensor, weight: torch.Tensor, pieces: int, multiply: Multiply, group: Group
) -> torch.Tensor:
    """Computes a row-parallel product whose messages overlap with its own products.

    Args:
        x: this rank's inputs, [T, I_r].
        weight: this rank's columns of the weight, [O, I_r].
        pieces: the number of pieces that the tokens are cut into, 1 to T.
        multiply: computes one product.
        group: the ranks.

    Returns:
        [T, O], the same on every rank.
    """
    return InPieces.apply(x, weight, pieces, multiply, group)
