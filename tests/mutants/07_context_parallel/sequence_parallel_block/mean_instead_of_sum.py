"""mutant: the mean of the ranks' parts: it takes their sum"""

import torch
import torch.nn.functional as F
from torch import nn

from course_lib.comm import Group
from course_lib.comm.autograd import all_gather_to_group, copy_to_group, reduce_scatter_in_group


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
        rows = up.weight.detach().tensor_split(group.size)
        columns = down.weight.detach().tensor_split(group.size, 1)
        self.up = nn.Parameter(rows[group.index].clone())
        self.down = nn.Parameter(columns[group.index].clone())
        self.bias = None if down.bias is None else nn.Parameter(down.bias.detach().clone())

    def forward(self, x_BtD: torch.Tensor) -> torch.Tensor:
        """This rank's shard [B, T/N, D] of the sequence, to the same."""
        norm, group = self.norm, self.group
        weight, bias = copy_to_group(norm.weight, group), copy_to_group(norm.bias, group)
        normed_BtD = F.layer_norm(x_BtD, norm.normalized_shape, weight, bias, norm.eps)
        whole_BTD = all_gather_to_group(normed_BtD, 1, group)
        part_BTD = F.linear(F.gelu(F.linear(whole_BTD, self.up)), self.down)
        y_BtD = x_BtD + reduce_scatter_in_group(part_BTD, 1, group) / group.size
        return y_BtD if self.bias is None else y_BtD + copy_to_group(self.bias, group)
