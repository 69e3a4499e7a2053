"""Causal self-attention cut by heads over the ranks of a group, with shared key-value heads.

Notebook 06. Heads do not talk to each other, so N ranks can each compute some of them. One process
computes, with H query heads and K key-value heads of width C (grouped-query attention, K ≤ H):

    q, k, v = the rows of qkv·x, as heads of width C
    query head h attends causally, with key-value head h // (H/K); scores are multiplied by 1/√C
    y = output·(the results of all heads, concatenated)

The weight of `qkv` is [(H + 2K)·C, D]: first the rows of all query heads, then of all key heads,
then of all value heads. That of `output` is [D, H·C]. Neither has a bias.

Rules, for rank r = `group.index` of N ranks. H is a multiple of N.

1. Rank r has H/N query heads, beginning with head r·H/N, and the columns of `output` that belong to
   them.
2. If K is a multiple of N, the rank also has K/N key-value heads, beginning with head r·K/N.
   Otherwise N is a multiple of K, and rank r has one, head r*K//N: each key-value head is then on
   N/K neighbouring ranks. In both cases a rank's query heads find their key-value heads on the same
   rank.
3. The module's only parameters are four `nn.Parameter`s, each in its own memory and not a view:
   `query` [H/N·C, D], `key` and `value` [max(1, K/N)·C, D], `output` [D, H/N·C].
4. `forward` returns the whole y on every rank, and x gets its whole gradient on every rank. This
   takes one all-reduce of a tensor like x in forward and one in backward: 2(N-1)/N·S bytes each.
5. The gradient of a parameter is the matching slice of one process's gradient. If a key-value head
   is shared, each of its ranks has seen only its own query heads, and so has only one summand: in
   each backward, the gradients of `key` and `value` are summed over `sharers`, so that all of these
   ranks have the same, whole gradient. There may be several backwards before a step: gradients add
   up as usual. With s = N/K sharers, this sends 2(s-1)/s times the bytes of `key` and `value`.

You may use `copy_to_group` (f: identity forward, all-reduce backward) and `reduce_from_group` (g:
all-reduce forward, identity backward), both called with `(tensor, group)`, and torch, for example
`F.scaled_dot_product_attention` on [B, heads, T, C].
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
        sharers: the N/K ranks that have this rank's key-value head; None if K ≥ N. All ranks of the
            job must take part in making a group, so it is made outside and passed in.

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
        super().__init__()  # mutate: same
        self.group, self.sharers = group, sharers  # mutate: same
        self.width = qkv.out_features // (heads + 2 * kv_heads)
        # BEGIN SOLUTION: cut query, key, value and output
        rows = [count * self.width for count in (heads, kv_heads, kv_heads)]
        query, key, value = qkv.weight.split(rows)  # mutate: same
        size, pieces = group.size, min(kv_heads, group.size)
        own, piece = group.index, group.index * pieces // group.size
        self.query, self.key, self.value, self.output = (
            nn.Parameter(cut.detach().clone())  # mutate: same
            for cut in (
                query.chunk(size)[own],
                key.chunk(pieces)[piece],
                value.chunk(pieces)[piece],
                output.weight.chunk(size, 1)[own],
            )
        )
        # END SOLUTION

    def forward(self, x_BTD: torch.Tensor) -> torch.Tensor:
        """Takes and returns [B, T, D], the same on every rank."""
        # BEGIN SOLUTION: attention of this rank's heads, and the two all-reduces
        x_BTD = copy_to_group(x_BTD, self.group)  # mutate: same
        key: torch.Tensor = self.key
        value: torch.Tensor = self.value
        if self.sharers is not None:
            key, value = copy_to_group(key, self.sharers), copy_to_group(value, self.sharers)
        q, k, v = (
            F.linear(x_BTD, weight).unflatten(2, (-1, self.width)).transpose(1, 2)
            for weight in (self.query, key, value)
        )
        own_BHTC = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        part_BTD = F.linear(own_BHTC.transpose(1, 2).flatten(2), self.output)
        return reduce_from_group(part_BTD, self.group)
        # END SOLUTION
