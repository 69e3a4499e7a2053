"""mutant: node group and rail group are swapped"""

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
    firsts = range(0, world.size, ranks_per_node)
    nodes = [list(range(first, first + ranks_per_node)) for first in firsts]
    rails = [[first + local for first in firsts] for local in range(ranks_per_node)]
    node_groups = [dist.new_group(ranks) for ranks in nodes]
    rail_groups = [dist.new_group(ranks) for ranks in rails]
    return Place(
        node, local_rank, nodes[node], rails[local_rank], rail_groups[local_rank], node_groups[node]
    )
