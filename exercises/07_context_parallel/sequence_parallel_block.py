"""A feed-forward block whose activations stay cut along the sequence: sequence parallelism.

Notebook 07. Tensor parallelism cuts the two matrices of `x + down(gelu(up(norm(x))))`, but every
rank still holds the whole x, and computes the same norm of it. An all-reduce is a reduce-scatter
followed by an all-gather: take the two apart, and between them each rank has 1/N of the sequence:

                         before the block     before `up`     after `down`     after the block
    tensor parallel      x whole              nothing         all-reduce       y whole
    sequence parallel    x a shard            all-gather      reduce-scatter   y a shard

Both send 2(N-1)/N·S bytes forward, with S the bytes of the whole x, and as many backward. But norm,
residual and dropout work on 1/N of the tokens, and autograd keeps only 1/N of the activations for
them.

Rules, for rank r = `group.index` of N ranks:

1. x is this rank's shard [B, T/N, D] of the sequence, part r, and so is the result. `norm` works on
   the shard (use `F.layer_norm` or the module itself), before anything is gathered.
2. `up` is cut into rows and `down` into columns as `tensor_split` cuts F into N parts: F need not
   be a multiple of N. The parts `up` [F/N, D] and `down` [D, F/N] are `nn.Parameter`s, each in its
   own memory. The linear layer `up` has no bias. That of `down`, if there is one, is whole on every
   rank as the parameter `bias` [D], and is added once. The only other parameters are those of
   `norm`.
3. Gradients are those of the sum of all ranks' losses in one process: x.grad is that of this shard,
   `up.grad` and `down.grad` are the matching slices.
4. `norm.weight`, `norm.bias` and `bias` are replicated, but each rank sees only its own tokens: in
   each backward their gradients are summed over the ranks, so that all ranks hold the whole ones.
   There may be several backwards before a step: gradients add up as usual.
5. Each rank sends (N-1)/N·S bytes in one all-gather and as many in one reduce-scatter forward, and
   the same backward. Besides, it sends only 2(N-1)/N times the bytes of the replicated parameters,
   in backward. The forward gives the same without gradients (`torch.no_grad()`).

You may use `all_gather_to_group(tensor, dim, group)` (backward: reduce-scatter),
`reduce_scatter_in_group(tensor, dim, group)` (backward: all-gather), `copy_to_group(tensor, group)`
(forward: nothing; backward: all-reduce, of parameters as of any tensor), and torch.

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
        norm: the module from the arguments.
        up: [F/N, D].
        down: [D, F/N].
        bias: [D], or None.
    """

    def __init__(self, norm: nn.LayerNorm, up: nn.Linear, down: nn.Linear, group: Group) -> None:
        super().__init__()
        self.norm, self.group = norm, group
        raise NotImplementedError("sequence_parallel_block: cut up and down; keep the bias")

    def forward(self, x_BtD: torch.Tensor) -> torch.Tensor:
        """Takes and returns this rank's shard [B, T/N, D] of the sequence."""
        raise NotImplementedError("sequence_parallel_block: norm, gather, up, down, scatter, bias")
