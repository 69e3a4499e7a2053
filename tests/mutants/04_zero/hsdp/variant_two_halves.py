"""variant: the all-reduce as two halves, the gradient added in place"""

import torch
from torch import nn

from course_lib.comm import Group, all_gather, reduce_scatter


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
        reduce_scatter(mean, padded(gradient, self.shard.size), self.shard, "avg")
        part = padded(mean, self.replica.size)
        own = part.new_empty(len(part) // self.replica.size)
        reduce_scatter(own, part, self.replica, "avg")
        part = torch.empty_like(part)
        all_gather(part, own, self.replica)
        mean = part[: len(mean)].clone()
        if self.weights.grad is None:
            self.weights.grad = torch.zeros_like(self.weights)
        self.weights.grad += mean
