"""variant: the mesh of course_lib"""

from dataclasses import dataclass

import torch.distributed as dist

from course_lib.comm import Group, Mesh


@dataclass
class Place:
    node: int
    local_rank: int
    node_ranks: list[int]
    rail_ranks: list[int]
    node_group: dist.ProcessGroup
    rail_group: dist.ProcessGroup


def hello_mesh(world: Group, ranks_per_node: int) -> Place:
    mesh = Mesh(world, {"node": world.size // ranks_per_node, "local": ranks_per_node})
    place = mesh.get_coordinate()
    node, rail = mesh["local"], mesh["node"]
    return Place(
        place["node"], place["local"], list(node.ranks), list(rail.ranks), node.handle, rail.handle
    )
