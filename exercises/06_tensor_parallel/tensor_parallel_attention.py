"""Causal self-attention cut by heads over the ranks of a group, with shared key-value heads.

Notebook 06. Heads do not talk to each other, so N ranks can each compute some of them. One process
computes, with H query heads and K key-value heads of width C (grouped-query attention, K ≤ H):

    q, k, v = the rows of qkv·x, as heads of width C
    query head h attends with key-value head h // (H/K), causally; scores times 1/√C
    y = output·(all heads, side by side)

The weight of `qkv` is [(H + 2K)·C, D]: first the rows of all query heads, then of all key heads,
then of all value heads. That of `output` is [D, H·C]. Neither has a bias.

Rules, for rank r = `group.index` of N ranks. H is a multiple of N.

1. Rank r has the H/N query heads from r·H/N on, and the columns of `output` that belong to them.
2. If K is a multiple of N, it has the K/N key-value heads from r·K/N on. Else N is a multiple of K,
   and rank r has one, number r*K//N: that head is on N/K ranks, one after the other. Either way a
   rank's query heads find their key-value heads on the same rank.
3. The four cuts are `nn.Parameter`s with memory of their own, the module's only parameters:
   `query` [H/N·C, D], `key` and `value` [max(1, K/N)·C, D], `output` [D, H/N·C].
4. `forward` gives the whole y on every rank; the gradient of x is the whole one on every rank, too.
   One all-reduce of a tensor like x in forward, and one in backward: 2(N-1)/N·S bytes each.
5. The gradient of a part is the slice of one process's gradient. If a key-value head is shared,
   each of its ranks has seen other query heads, and has only a summand: in each backward the
   gradients of `key` and of `value` are summed over `sharers`, so that all of these ranks hold the
   whole one, the same. Several backwards may come before a step: gradients add up as they always
   do. With s = N/K sharers, this sends 2(s-1)/s times the bytes of `key` and `value`.

Yours to use: `copy_to_group` (f: identity forward, all-reduce backward) and `reduce_from_group`
(g: all-reduce forward, identity backward), both `(tensor, group)`, and torch, for example
`F.scaled_dot_product_attention` on [B, heads, T, C].

Your answer may use `comm` of `course_lib`.
"""

import torch
import torch.nn.functional as F
from torch import nn

from course_lib.comm import Group, copy_to_group, reduce_from_group


class TensorParallelAttention(nn.Module):
    """This rank's heads of an attention.

    Args:
        qkv: the whole projection to queries, keys and values; the same on every rank.
        output: the whole projection of the heads; the same on every rank.
        heads: H.
        kv_heads: K.
        group: the N ranks.
        sharers: the N/K ranks that have this rank's key-value head; None if K ≥ N. Making a group
            needs all ranks of the job, so it is made outside and handed in.

    Attributes:
        query: [H/N·C, D].
        key: [max(1, K/N)·C, D].
        value: [max(1, K/N)·C, D].
        output: [D, H/N·C].
    """

    def __init__(
        self,
        qkv: nn.Linear,
        output: nn.Linear,
        heads: int,
        kv_heads: int,
        group: Group,
        sharers: Group | None = None,
    ) -> None:
        super().__init__()
        self.group, self.sharers = group, sharers
        self.width = qkv.out_features // (heads + 2 * kv_heads)
        raise NotImplementedError("tensor_parallel_attention: cut query, key, value and output")

    def forward(self, x_BTD: torch.Tensor) -> torch.Tensor:
        """[B, T, D], the same on every rank, to the same."""
        raise NotImplementedError("tensor_parallel_attention: attention of this rank's heads, and the two all-reduces")
