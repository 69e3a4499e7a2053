"""mutant: the whole gradient goes between the nodes: reduce-scatter over `shard` first"""

import torch
from torch import nn

from course_lib.comm import Group, all_gather, all_reduce, reduce_scatter


def padded(row: torch.Tensor, parts: int) -> torch.Tensor:
    """The row, with zeros behind it up to a multiple of `parts` elements."""
    return nn.functional.pad(row, (0, -len(row) % parts))


class HSDP:
    """Weights that are sharded over one axis of a mesh, and replicated over the other.

    Args:
        flat: all weights, one row.
        shard: this rank's group along the axis `shard`: g ranks.
        replica: this rank's group along the axis `replica`: n ranks.

    Attributes:
        weights: this rank's shard, one row; what the optimizer gets.
    """

    def __init__(self, flat: torch.Tensor, shard: Group, replica: Group) -> None:
        self.shard, self.replica = shard, replica
        self.size = len(flat)
        mine = padded(flat, shard.size).chunk(shard.size)[shard.index]
        self.weights = nn.Parameter(mine.clone())

    def gather(self) -> torch.Tensor:
        """All weights, one row as long as `flat`."""
        mine = self.weights.detach()
        whole = mine.new_empty(len(mine) * self.shard.size)
        all_gather(whole, mine, self.shard)
        return whole[: self.size]

    def reduce(self, gradient: torch.Tensor) -> None:
        """Adds the mean of all ranks' gradients to `weights.grad`.

        Args:
            gradient: of this rank's own loss, one row as long as `flat`.
        """
        mean = torch.empty_like(self.weights)
        whole = padded(gradient, self.shard.size).clone()
        all_reduce(whole, self.replica, "avg")
        reduce_scatter(mean, whole, self.shard, "avg")
        self.weights.grad = mean if self.weights.grad is None else self.weights.grad + mean
