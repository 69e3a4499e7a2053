"""Sequence parallelism: between the regions of tensor parallelism, a rank keeps 1/N of the tokens.

Notebook: 07 Sequence and context parallel (sequence_parallel_block).
Paper: Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models" (2022),
section 4.2.
Costs what tensor parallelism does, since an all-reduce is a reduce-scatter and an all-gather:
(N-1)/N·S to enter and to leave, each way; in addition the norms' gradients, 2(N-1)/N of their few
bytes.
The production version does not keep the gathered tensor, and gathers it again for the backward.
"""

from __future__ import annotations

import torch
from torch import nn

from course_lib.comm import Group, all_gather_to_group, reduce_scatter_in_group
from course_lib.parallel.tensor.tensor_parallel import TensorRegion, sum_gradients_of


class SequenceRegion(TensorRegion):
    """A region whose outside is cut along the sequence: norms, residuals and dropout see T/N.

    What is outside and has weights (the norms) sees a part of the tokens on each rank: their
    gradients must be summed, with `used_outside` or `tensor_parallel.sum_gradients_of`. The bias of
    a `RowParallelLinear` that leaves here is summed by that layer.

    Args:
        group: the ranks.
        dim: the dim of the sequence.
    """

    def __init__(self, group: Group, dim: int = 1) -> None:
        super().__init__(group)
        self.dim = dim

    def enter(self, x: torch.Tensor) -> torch.Tensor:
        """[B, T/N, D] to [B, T, D], all-gathered; backward reduce-scatters: (N-1)/N·S each."""
        return all_gather_to_group(x, self.dim, self.group)

    def leave(self, x: torch.Tensor) -> torch.Tensor:
        """[B, T, D] to this rank's part of the sum; forward reduce-scatters, backward all-gathers.

        Raises:
            CommError: T is not a multiple of N.
        """
        return reduce_scatter_in_group(x, self.dim, self.group)

    def used_outside(self, parameter: nn.Parameter) -> None:
        """Has the gradient of a weight that sees T/N tokens on each rank summed: 2(N-1)/N of it."""
        sum_gradients_of([parameter], self.group)
