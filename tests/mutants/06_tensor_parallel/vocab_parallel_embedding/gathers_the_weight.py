"""mutant: the whole embedding is gathered"""

import torch
from torch import nn

from course_lib.comm import Group
from course_lib.comm.autograd import all_gather_to_group


class VocabParallelEmbedding(nn.Module):
    def __init__(self, full: nn.Embedding, group: Group) -> None:
        super().__init__()
        parts = full.weight.detach().tensor_split(group.size)
        self.group = group
        self.sizes = [len(part) for part in parts]
        self.first = sum(len(part) for part in parts[: group.index])
        self.weight = nn.Parameter(parts[group.index].clone())

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        most = max(self.sizes)
        padding = self.weight.new_zeros(most - len(self.weight), self.weight.shape[1])
        whole = all_gather_to_group(torch.cat([self.weight, padding]), 0, self.group)
        parts = [part[:n] for part, n in zip(whole.split(most), self.sizes, strict=True)]
        rows = torch.cat(parts)[tokens]
        return rows / self.group.size + rows.detach() * (1 - 1 / self.group.size)
