"""variant: heads by index, scores and mask by hand, a function for f and g"""

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
        cut = qkv.weight.detach().unflatten(0, (-1, self.width))
        query, key, value = cut[:heads], cut[heads : heads + kv_heads], cut[heads + kv_heads :]
        each, few = heads // group.size, max(1, kv_heads // group.size)
        first = group.index * kv_heads // group.size
        self.query = nn.Parameter(query[group.index * each :][:each].flatten(0, 1).clone())
        self.key = nn.Parameter(key[first : first + few].flatten(0, 1).clone())
        self.value = nn.Parameter(value[first : first + few].flatten(0, 1).clone())
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
        each = q.shape[1] // k.shape[1]
        scores = q @ k.repeat_interleave(each, 1).mT / self.width**0.5
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        weights = scores.masked_fill(~mask, float("-inf")).softmax(-1)
        own_BHTC = weights @ v.repeat_interleave(each, 1)
        part_BTD = F.linear(own_BHTC.transpose(1, 2).flatten(2), self.output)
        return reduce_from_group(part_BTD, self.group)
