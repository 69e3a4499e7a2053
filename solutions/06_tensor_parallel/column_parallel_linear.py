"""A linear layer that is cut along its outputs: each rank has some rows of the weight.

Notebook 06. `y = x Wᵀ + b`, with W of shape [out, in]. Cut W along `out`, so that each rank of the
group has some of its rows, and the matching entries of b. A rank that has the whole x can then
compute its own entries of y without the other ranks:

    y_r = x W_rᵀ + b_r          x [..., in]    W_r [out_r, in]    b_r [out_r]    y_r [..., out_r]

Megatron-LM calls the layer column-parallel, since it writes W transposed.

The forward sends nothing. But all ranks have used the same x, each for different outputs, so the
gradient of x that a rank computes is only one summand: the whole gradient is the sum over the
ranks. That is f of the exercise before this one: identity forward, all-reduce backward.

Rules

- `full` has the same numbers on every rank, and must not be changed. Its rows are cut along `out`
  as `torch.tensor_split` cuts: if N does not divide `out`, some ranks have one row more than
  others, and a rank may have none. Rank r is the one with `group.index` r; the group need not be
  the whole world.
- `weight` and `bias` are this layer's only parameters (`nn.Parameter`), slices of those of `full`;
  `bias` is None if `full` has none.
- A rank keeps its slice and nothing else: no reference to `full`, and no view of its weight, which
  would keep the memory of the whole weight alive.
- The input may have any number of dims before the last, and may be non-contiguous.
- Building the layer and its forward send nothing. The backward makes one all-reduce of the input's
  gradient: each rank sends 2(N-1)/N·S bytes, with S the bytes of the input. Weight and bias need
  none. (If the input needs no gradient, the all-reduce is not needed; you may make it or not.)

You may use torch.nn, `course_lib.comm`, and `copy_to_group(x, group)`, which is f.
"""

import torch
from torch import nn
from torch.nn.functional import linear

from course_lib.comm import Group, copy_to_group


class ColumnParallelLinear(nn.Module):
    """One rank's part of a linear layer that is cut along its outputs.

    Args:
        full: the whole layer, the same on all ranks.
        group: the ranks that share it.

    Attributes:
        weight: this rank's rows [out_r, in].
        bias: this rank's entries of the bias [out_r]; None if the full layer has none.
    """

    def __init__(self, full: nn.Linear, group: Group) -> None:
        super().__init__()
        # BEGIN SOLUTION: the slices
        self.weight = nn.Parameter(  # mutate: same
            full.weight.tensor_split(group.size)[group.index].clone()  # a view would keep it all
        )
        self.group = group  # mutate: same
        self.bias = None
        if full.bias is not None:
            self.bias = nn.Parameter(full.bias.tensor_split(group.size)[group.index].clone())
        # END SOLUTION

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """This rank's slice of the output.

        Args:
            x: [..., in], the same on every rank.

        Returns:
            [..., out_r].
        """
        # BEGIN SOLUTION: forward
        return linear(copy_to_group(x, self.group), self.weight, self.bias)
        # END SOLUTION
