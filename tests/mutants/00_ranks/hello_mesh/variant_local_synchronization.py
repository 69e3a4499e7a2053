"""variant: only members make a group, in the way that torch has for it"""

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
    node, local_rank = divmod(world.rank, ranks_per_node)
    node_ranks = range(node * ranks_per_node, (node + 1) * ranks_per_node)
    rail_ranks = range(local_rank, world.size, ranks_per_node)
    node_group = dist.new_group(list(node_ranks), use_local_synchronization=True)
    rail_group = dist.new_group(list(rail_ranks), use_local_synchronization=True)
    return Place(node, local_rank, list(node_ranks), list(rail_ranks), node_group, rail_group)
