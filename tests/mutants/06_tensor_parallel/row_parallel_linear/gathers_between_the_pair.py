"""mutant: something is gathered between the pair, the whole weight is alive"""

import torch
from torch import nn
from torch.nn.functional import linear, pad

from course_lib.comm import Group
from course_lib.comm.autograd import gather_from_group


class RowParallelLinear(nn.Module):

    def __init__(self, full: nn.Linear, group: Group) -> None:
        super().__init__()
        self.group = group
        self.weight = nn.Parameter(full.weight.detach().clone())
        self.counts = [p.shape[1] for p in full.weight.tensor_split(group.size, 1)]
        self.bias = None if full.bias is None else nn.Parameter(full.bias.clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        most = self.counts[0]
        whole = gather_from_group(pad(x, (0, most - x.shape[-1])), -1, self.group)
        parts = zip(whole.split(most, -1), self.counts, strict=True)
        return linear(torch.cat([p[..., :n] for p, n in parts], -1), self.weight, self.bias)
