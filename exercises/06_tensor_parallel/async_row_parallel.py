"""A row-parallel product in pieces: the message of one piece travels under the next product.

Notebook 06. A rank has some of the inputs of a linear layer, so its product is one summand of the
result, and an all-reduce adds the summands up. The sum is taken for each token by itself. So the
product can be cut into pieces of some tokens each:

    product 0 │ product 1    │ product 2    │
              │ all-reduce 0 │ all-reduce 1 │ all-reduce 2 │

Rules, for x [T, I_r], this rank's inputs of T tokens, and weight [O, I_r]:

- The pieces are those of `torch.tensor_split` along the tokens: T need not be a multiple of their
  number, but there are at least as many tokens as pieces.
- Each product is made by `multiply(piece, weight)`, called once for each piece and in order; it
  returns `piece · weightᵀ`, a tensor of its own. (The grader marks in it when a product begins.)
- The all-reduce of a piece is begun before the next product, and is not waited for while products
  are left. Before the function returns, all are waited for: a tensor under way is nobody's to read.
- The result [T, O] is the sum over the ranks, the same on every rank: 2(N-1)/N·S bytes in all, in
  as many all-reduces as there are pieces.
- Gradients flow to x and weight, each rank its own, as in one process for the whole result. The
  result is the same on all ranks, so its gradient is too: backward sends nothing.
- x, weight and the gradient that comes in stay as they are.

Your answer may use `comm` of `course_lib`.
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
        raise NotImplementedError("async_row_parallel: forward")

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        """One gradient for each argument of forward; None for those that have none."""
        raise NotImplementedError("async_row_parallel: backward")


def async_row_parallel(
    x: torch.Tensor, weight: torch.Tensor, pieces: int, multiply: Multiply, group: Group
) -> torch.Tensor:
    """A row-parallel product whose messages hide behind its own products.

    Args:
        x: this rank's inputs, [T, I_r].
        weight: this rank's columns of the weight, [O, I_r].
        pieces: into how many pieces the tokens are cut, 1 to T.
        multiply: makes one product.
        group: the ranks.

    Returns:
        [T, O], the same on every rank.
    """
    return InPieces.apply(x, weight, pieces, multiply, group)
