"""HSDP: shards inside a node, replicas between nodes.

Notebook 04. FSDP over all ranks sends every weight over the slowest link. Hybrid sharding arranges
the ranks in a mesh of two axes: `shard`, the ranks of one node, which share fast links, and
`replica`, the ranks in the same place on all nodes. With 2 nodes of 2 ranks:

    node 0:  rank 0  rank 1     weights cut in 2: rank 0 and rank 2 have the first shard,
    node 1:  rank 2  rank 3                       rank 1 and rank 3 the second

    gather    all-gather over `shard`: each rank sends (g-1)/g·S bytes, none between nodes
    reduce    reduce-scatter over `shard`: (g-1)/g·S bytes; then all-reduce the resulting shard
              over `replica`: 2(n-1)/n·S/g bytes between the nodes

with g ranks on each of n nodes, and S bytes of weights. A rank holds S/g bytes, where FSDP over all
ranks holds S/(g·n).

Rules
- `flat` holds all weights in one dimension, the same on every rank. g need not divide its size: pad
  it with zeros at the end. Keep only the shard, in its own memory.
- `gather` returns the weights without the padding, with the values that the shards have now.
- `reduce` gets this rank's own gradient, as long as `flat`, and must not change it. It *adds* the
  mean over all ranks of the mesh to `weights.grad`; the gradient of the padding is zero.
- You may choose the functions of `course_lib.comm`. g or n may be 1.

Your answer may use `comm` of `course_lib`.
"""

import torch
from torch import nn

from course_lib.comm import Group, all_gather, all_reduce, reduce_scatter


def padded(row: torch.Tensor, parts: int) -> torch.Tensor:
    """Appends zeros to the row, up to a multiple of `parts` elements."""
    return nn.functional.pad(row, (0, -len(row) % parts))


class HSDP:
    """Weights that are sharded over one axis of a mesh, and replicated over the other.

    Args:
        flat: all weights, one dimension.
        shard: this rank's group along the axis `shard`: g ranks.
        replica: this rank's group along the axis `replica`: n ranks.

    Attributes:
        weights: this rank's shard, one dimension, an `nn.Parameter`: the optimizer gets it.
    """

    def __init__(self, flat: torch.Tensor, shard: Group, replica: Group) -> None:
        raise NotImplementedError("hsdp: cut the weights")

    def gather(self) -> torch.Tensor:
        """Returns all weights, one dimension, as long as `flat`."""
        raise NotImplementedError("hsdp: gather the weights")

    def reduce(self, gradient: torch.Tensor) -> None:
        """Adds the mean of all ranks' gradients to `weights.grad`.

        Args:
            gradient: the gradient of this rank's own loss, one dimension, as long as `flat`.
        """
        raise NotImplementedError("hsdp: reduce the gradient")
