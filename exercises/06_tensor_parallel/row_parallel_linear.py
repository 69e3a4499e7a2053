"""A linear layer that is cut along its inputs: each rank has some columns of the weight.

Notebook 06. `y = x Wᵀ + b`, with W of shape [out, in]. Now cut W along `in`. Each rank needs only
the matching entries of x, and its product is one summand of the whole y:

    y = Σ_r x_r W_rᵀ + b        x_r [..., in_r]    W_r [out, in_r]    b [out]    y [..., out]

One all-reduce adds the summands up, and then every rank has the whole y. Its backward sends
nothing. That is g of the first exercise: all-reduce forward, identity backward. Megatron-LM calls
the layer row-parallel, since it writes W transposed.

The layer is made to follow a column-parallel one: the output of that layer on a rank is exactly the
x_r that this layer needs there, and an activation function between them works on each entry alone.
So nothing is gathered between the two, and the pair costs one all-reduce forward and one backward:

    x -> f -> column -> gelu -> row -> g -> y

Rules

- `full` has the same numbers on every rank, and must not be changed. Its weight is cut along `in`
  as `torch.tensor_split` cuts: sizes may differ by one, and a rank may have no column. Rank r is
  the one with `group.index` r; the group need not be the whole world.
- The bias is kept whole on every rank. y contains it once, not once for each rank. Its gradient is
  the whole one on every rank: then all copies take the same steps and stay equal.
- `weight` and `bias` are this layer's only parameters (`nn.Parameter`); `bias` is None if `full`
  has none.
- A rank keeps its slice of the weight, its bias, and nothing else: no reference to `full`, and no
  view of its weight, which would keep the memory of the whole weight alive.
- The input may have any number of dims before the last, and may be non-contiguous.
- Building the layer sends nothing. The forward makes one all-reduce of the output: each rank sends
  2(N-1)/N·S bytes, with S the bytes of the output. The backward sends nothing.
- The forward gives the same without gradients (`torch.no_grad()`).

You may use torch.nn, `course_lib.comm`, and `reduce_from_group(y, group)`, which is g.

Your answer may use `comm` of `course_lib`.
"""

import torch
from torch import nn
from torch.nn.functional import linear

from course_lib.comm import Group, reduce_from_group


class RowParallelLinear(nn.Module):
    """One rank's part of a linear layer that is cut along its inputs.

    Args:
        full: the whole layer, the same on all ranks.
        group: the ranks that share it.

    Attributes:
        weight: this rank's columns [out, in_r].
        bias: the whole bias [out]; None if the full layer has none.
    """

    def __init__(self, full: nn.Linear, group: Group) -> None:
        super().__init__()
        raise NotImplementedError("row_parallel_linear: the slice, and the bias")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Computes the whole output.

        Args:
            x: [..., in_r], this rank's slice of the input.

        Returns:
            [..., out], the same on every rank.
        """
        raise NotImplementedError("row_parallel_linear: forward")
