"""mutant: query heads take the KV heads in turns"""

import torch
import torch.nn.functional as F
from torch import nn

from course_lib.comm import Group
from course_lib.comm.autograd import copy_to_group, reduce_from_group


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
        rows = [count * self.width for count in (heads, kv_heads, kv_heads)]
        query, key, value = qkv.weight.detach().split(rows)
        pieces = min(kv_heads, group.size)
        piece = group.index * pieces // group.size
        self.query = nn.Parameter(query.chunk(group.size)[group.index].clone())
        self.key = nn.Parameter(key.chunk(pieces)[piece].clone())
        self.value = nn.Parameter(value.chunk(pieces)[piece].clone())
        columns = output.weight.detach().chunk(group.size, 1)
        self.output = nn.Parameter(columns[group.index].clone())

    def forward(self, x_BTD: torch.Tensor) -> torch.Tensor:
        """[B, T, D], the same on every rank, to the same."""
        x_BTD = copy_to_group(x_BTD, self.group)
        key, value = self.key, self.value
        if self.sharers is not None:
            key, value = copy_to_group(key, self.sharers), copy_to_group(value, self.sharers)
        q, k, v = (
            F.linear(x_BTD, weight).unflatten(2, (-1, self.width)).transpose(1, 2)
            for weight in (self.query, key, value)
        )
        turns = q.shape[1] // k.shape[1]
        k, v = k.repeat(1, turns, 1, 1), v.repeat(1, turns, 1, 1)
        own_BHTC = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        part_BTD = F.linear(own_BHTC.transpose(1, 2).flatten(2), self.output)
        return reduce_from_group(part_BTD, self.group)
