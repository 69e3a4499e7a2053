"""Hello, mesh: where a rank sits, and with whom it shares a node and a rail.

Notebook 00. A cluster has nodes with the same number of ranks each, and ranks are numbered node by
node. With 3 ranks on each of 2 nodes:

    node 0:  rank 0  rank 1  rank 2
    node 1:  rank 3  rank 4  rank 5
    local    0       1       2

The *node group* of rank 4 is 3, 4, 5, which share fast links. Its *rail group* is 1, 4: the ranks
that have its local rank on all nodes, whose network cards are connected to one switch.

Rules: use `world.rank`, `world.size` and `ranks_per_node`, and not the environment (`LOCAL_RANK`):
it knows nothing of the nodes that the grader makes up. Make groups with `dist.new_group(ranks)`,
where `ranks` are global ranks. All nodes are full, and there may be only one.
"""

from dataclasses import dataclass

import torch.distributed as dist

from course_lib.comm import Group


@dataclass
class Place:
    """Where a rank sits.

    Attributes:
        node: the number of its node, from 0.
        local_rank: its number on the node, from 0.
        node_ranks: all ranks of its node, ascending.
        rail_ranks: the ranks with its local rank, one on each node, ascending.
        node_group: torch's process group of `node_ranks`.
        rail_group: torch's process group of `rail_ranks`.
    """

    node: int
    local_rank: int
    node_ranks: list[int]
    rail_ranks: list[int]
    node_group: dist.ProcessGroup
    rail_group: dist.ProcessGroup


def hello_mesh(world: Group, ranks_per_node: int) -> Place:
    """Says where this rank sits, and makes its two groups. Called by every rank.

    Args:
        world: the group of all ranks.
        ranks_per_node: how many ranks each node has; divides `world.size`.
    """
    # BEGIN SOLUTION
    node, local_rank = divmod(world.rank, ranks_per_node)
    firsts = range(0, world.size, ranks_per_node)
    nodes = [list(range(first, first + ranks_per_node)) for first in firsts]
    rails = [[first + local for first in firsts] for local in range(ranks_per_node)]
    node_groups = [dist.new_group(ranks) for ranks in nodes]  # all of them, on every rank
    rail_groups = [dist.new_group(ranks) for ranks in rails]
    return Place(
        node, local_rank, nodes[node], rails[local_rank], node_groups[node], rail_groups[local_rank]
    )
    # END SOLUTION
