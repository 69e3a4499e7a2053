"""variant: loops that remember the group in which this rank is"""

from dataclasses import dataclass

import torch.distributed as dist

from course_lib.comm import Group


@dataclass
class Place:
    node: int
    local_rank: int
    node_ranks: list[int]
    rail_ranks: list[int]
    node_group: dist.ProcessGroup
    rail_group: dist.ProcessGroup


def hello_mesh(world: Group, ranks_per_node: int) -> Place:
    node = world.rank // ranks_per_node
    local_rank = world.rank - node * ranks_per_node
    mine = {}
    for other in range(world.size // ranks_per_node):
        ranks = [other * ranks_per_node + local for local in range(ranks_per_node)]
        group = dist.new_group(ranks)
        if other == node:
            mine["node"] = (ranks, group)
    for local in range(ranks_per_node):
        ranks = [rank for rank in range(world.size) if rank % ranks_per_node == local]
        group = dist.new_group(ranks)
        if local == local_rank:
            mine["rail"] = (ranks, group)
    (node_ranks, node_group), (rail_ranks, rail_group) = mine["node"], mine["rail"]
    return Place(node, local_rank, node_ranks, rail_ranks, node_group, rail_group)
