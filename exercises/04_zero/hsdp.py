"""HSDP: shards inside a node, replicas between nodes.

Notebook 04. FSDP over all ranks sends every weight over the slowest link. Hybrid sharding lays the
ranks on a mesh of two axes: `shard`, the ranks of one node with its fast links, and `replica`, the
ranks with the same place on all nodes. With 2 nodes of 2 ranks:

    node 0:  rank 0  rank 1     weights cut in 2: rank 0 and rank 2 have the first shard,
    node 1:  rank 2  rank 3                       rank 1 and rank 3 the second

    gather    all-gather over `shard`: (g-1)/g·S bytes a rank, none of them between nodes
    reduce    reduce-scatter over `shard`: (g-1)/g·S; then all-reduce over `replica` of what is
              left, one shard: 2(n-1)/n·S/g bytes between the nodes

with g ranks on each of n nodes, and S bytes of weights. A rank holds S/g, more than FSDP's S/(g·n).

Rules
- `flat` holds all weights in one row, the same on every rank. Its size need not divide by g: pad it
  with zeros. Keep the shard alone, in memory of its own.
- `gather` returns the weights without the padding, and works again after the shard was changed.
- `reduce` gets this rank's own gradient, as long as `flat`, and leaves it as it is. It *adds* the
  mean over all ranks of the mesh to `weights.grad`; the gradient of the padding is zero.
- Which functions of `course_lib.comm` you take is free. g or n may be 1.

Your answer may use `comm` of `course_lib`.
"""

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
        raise NotImplementedError("hsdp: cut the weights")

    def gather(self) -> torch.Tensor:
        """All weights, one row as long as `flat`."""
        raise NotImplementedError("hsdp: gather the weights")

    def reduce(self, gradient: torch.Tensor) -> None:
        """Adds the mean of all ranks' gradients to `weights.grad`.

        Args:
            gradient: of this rank's own loss, one row as long as `flat`.
        """
        raise NotImplementedError("hsdp: reduce the gradient")
