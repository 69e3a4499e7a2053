"""All-reduce on two levels: most bytes stay on the fast links inside a node.

Notebook: 01 Collectives from scratch (hierarchical_all_reduce), 13 3D parallelism.
Paper: Goyal et al., "Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour" (2017), section 4;
Jia et al., "Highly Scalable Deep Learning Training System with Mixed-Precision" (2018).
Costs: for n nodes of g ranks, 2(n-1)/n·S/g between nodes and 2(g-1)/g·S inside, per rank. A flat
ring puts nearly 2·S through every node's one link to the next.
The production version (NCCL) builds its rings and trees from the topology that it finds.
"""

from __future__ import annotations

import torch

from course_lib.comm.algorithms.assembly import as_row, check_reduction, finish_average
from course_lib.comm.algorithms.ring import ring_all_gather, ring_all_reduce, ring_reduce_scatter
from course_lib.comm.errors import CommError
from course_lib.comm.group import Group


def hierarchical_all_reduce(
    tensor: torch.Tensor, node: Group, between: Group, op: str = "sum"
) -> None:
    """Reduces a tensor over all ranks of a grid, in place.

    Booked as its three parts, so that the ledger shows the bytes of each axis.

    Args:
        tensor: same shape and dtype on every rank, any number of elements.
        node: this rank's node, g ranks.
        between: the ranks of the same index in every node, n ranks.
        op: `sum`, `avg` or `max`.

    Raises:
        CommError: the groups share more than this rank, or `op` and the dtype do not fit.
    """
    check_reduction(tensor, op, "hierarchical_all_reduce")
    shared = set(node.ranks) & set(between.ranks)
    if shared != {node.rank}:
        raise CommError(
            f"a hierarchical all-reduce over {node} and {between}",
            f"the ranks {sorted(shared)} are in both",
            "the groups are a row and a column of a grid, which cross at one rank",
        )
    hop = "max" if op == "max" else "sum"  # an average is divided once, over all ranks
    with as_row(tensor, node) as row:
        mine = ring_reduce_scatter(row, node, hop)
        ring_all_reduce(mine, between, hop)
        finish_average(mine, op, node.size * between.size)
        ring_all_gather(row, node)
