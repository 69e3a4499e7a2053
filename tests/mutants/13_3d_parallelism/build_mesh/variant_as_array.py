"""variant: an array of ranks, as DeviceMesh"""

import math
from collections.abc import Mapping

import torch

from course_lib.comm import Group

AXES = ("pp", "dp", "ep", "cp", "tp")


def array(sizes: Mapping[str, int]) -> torch.Tensor:
    return torch.arange(math.prod(sizes.values())).view([sizes.get(axis, 1) for axis in AXES])


def coordinates(rank: int, sizes: Mapping[str, int]) -> dict[str, int]:
    found = (array(sizes) == rank).nonzero()[0].tolist()
    return dict(zip(AXES, found, strict=True))


def rank_of(place: Mapping[str, int], sizes: Mapping[str, int]) -> int:
    return int(array(sizes)[tuple(place[axis] for axis in AXES)])


def axis_ranks(rank: int, axis: str, sizes: Mapping[str, int]) -> list[int]:
    place = coordinates(rank, sizes)
    index = [slice(None) if other == axis else place[other] for other in AXES]
    return array(sizes)[tuple(index)].tolist()


def build_mesh(world: Group, sizes: Mapping[str, int], ranks_per_node: int) -> dict[str, Group]:
    count = math.prod(sizes.values())
    if set(sizes) - set(AXES) or min(sizes.values(), default=1) < 1 or count != world.size:
        raise ValueError(f"a mesh of {dict(sizes)} = {count} ranks in a world of {world.size}")
    lines = {
        axis: sorted({tuple(axis_ranks(rank, axis, sizes)) for rank in range(world.size)})
        for axis in AXES
    }
    if any(line[0] // ranks_per_node != line[-1] // ranks_per_node for line in lines["tp"]):
        raise ValueError(f"tp {sizes['tp']} goes across nodes of {ranks_per_node} ranks each")
    return {axis: world.split(lines[axis], axis) for axis in AXES}
