"""A feed-forward block whose activations stay cut along the sequence: sequence parallelism.

Notebook 07. Tensor parallelism cuts the two matrices of `x + down(gelu(up(norm(x))))`, but every
rank still holds the whole x, and does the same norm on it. An all-reduce is a reduce-scatter and an
all-gather: take it apart, and between the two each rank has 1/N of the sequence (S bytes is x):

                         before the block     before `up`     after `down`     after the block
    tensor parallel      x whole              nothing         all-reduce       y whole
    sequence parallel    x a shard            all-gather      reduce-scatter   y a shard

The same 2(N-1)/N·S bytes forward, and the same backward; but norm, residual and dropout work on
1/N of the tokens, and what autograd keeps for them is 1/N.

Rules, for rank r = `group.index` of N ranks:

1. x is this rank's shard [B, T/N, D] of the sequence, part r; so is the result. `norm` works on the
   shard (`F.layer_norm` or the module itself), before anything is gathered.
2. `up` is cut into rows and `down` into columns as `tensor_split` cuts F into N parts: F need not
   be a multiple of N. The cuts `up` [F/N, D] and `down` [D, F/N] are `nn.Parameter`s with memory of
   their own. The linear layer `up` has no bias; that of `down` (or None) stays whole on every rank,
   as `bias` [D], and is added once. No other parameters but those of `norm`.
3. Gradients are those of the sum of all ranks' losses, in one process: x.grad for this shard,
   `up.grad` and `down.grad` the slices.
4. `norm.weight`, `norm.bias` and `bias` are replicated, but each rank sees only its own tokens: in
   each backward their gradients are summed over the ranks, so that all ranks hold the whole ones.
   Several backwards may come before a step: gradients add up as they always do.
5. Bytes: (N-1)/N·S for one all-gather and the same for one reduce-scatter forward, and the same
   backward; beyond that only 2(N-1)/N times the bytes of the replicated parameters, backward.

Yours to use: `all_gather_to_group(tensor, dim, group)` (backward: reduce-scatter),
`reduce_scatter_in_group(tensor, dim, group)` (backward: all-gather), `copy_to_group(tensor, group)`
(forward: nothing; backward: all-reduce, for a parameter as for any tensor), and torch.

Your answer may use `comm` of `course_lib`.
"""

import torch
import torch.nn.functional as F
from torch import nn

from course_lib.comm import Group, all_gather_to_group, copy_to_group, reduce_scatter_in_group


class SequenceParallelBlock(nn.Module):
    """This rank's part of a feed-forward block.

    Args:
        norm: with weight and bias over D; the same on every rank.
        up: D to F, without bias; the same on every rank.
        down: F to D, with or without bias; the same on every rank.
        group: the N ranks.

    Attributes:
        norm: the module that was given.
        up: [F/N, D].
        down: [D, F/N].
        bias: [D], or None.
    """

    def __init__(self, norm: nn.LayerNorm, up: nn.Linear, down: nn.Linear, group: Group) -> None:
        super().__init__()
        self.norm, self.group = norm, group
        raise NotImplementedError("sequence_parallel_block: cut up and down; keep the bias")

    def forward(self, x_BtD: torch.Tensor) -> torch.Tensor:
        """This rank's shard [B, T/N, D] of the sequence, to the same."""
        raise NotImplementedError("sequence_parallel_block: norm, gather, up, down, scatter, bias")
