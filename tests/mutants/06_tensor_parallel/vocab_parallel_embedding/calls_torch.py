"""mutant: was called past course_lib.comm"""

import torch
import torch.distributed as dist
from torch import nn

from course_lib.comm import Group


class VocabParallelEmbedding(nn.Module):
    def __init__(self, full: nn.Embedding, group: Group) -> None:
        super().__init__()
        parts = full.weight.detach().tensor_split(group.size)
        self.group = group
        self.first = sum(len(part) for part in parts[: group.index])
        self.weight = nn.Parameter(parts[group.index].clone())

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        local = tokens - self.first
        mine = (local >= 0) & (local < len(self.weight))
        rows = self.weight.new_zeros(*tokens.shape, self.weight.shape[1])
        rows[mine] = self.weight[local[mine]]
        total = rows.detach().clone()
        dist.all_reduce(total, group=self.group.handle)
        return rows + (total - rows.detach())
