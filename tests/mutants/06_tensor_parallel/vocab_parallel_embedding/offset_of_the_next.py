"""mutant: the output, wrong value"""

import torch
from torch import nn

from course_lib.comm import Group
from course_lib.comm.autograd import reduce_from_group


class VocabParallelEmbedding(nn.Module):
    def __init__(self, full: nn.Embedding, group: Group) -> None:
        super().__init__()
        parts = full.weight.detach().tensor_split(group.size)
        self.group = group
        self.first = sum(len(part) for part in parts[: group.index + 1])
        self.weight = nn.Parameter(parts[group.index].clone())

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        local = tokens - self.first
        mine = (local >= 0) & (local < len(self.weight))
        rows = self.weight.new_zeros(*tokens.shape, self.weight.shape[1])
        rows[mine] = self.weight[local[mine]]
        return reduce_from_group(rows, self.group)
