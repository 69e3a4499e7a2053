"""mutant: lines and names are mixed"""

import math
from collections.abc import Mapping

from course_lib.comm import Group

AXES = ("pp", "dp", "ep", "cp", "tp")


def coordinates(rank: int, sizes: Mapping[str, int]) -> dict[str, int]:
    place = {}
    for axis in reversed(AXES):
        rank, place[axis] = divmod(rank, sizes.get(axis, 1))
    return place


def rank_of(place: Mapping[str, int], sizes: Mapping[str, int]) -> int:
    rank = 0
    for axis in AXES:
        rank = rank * sizes.get(axis, 1) + place[axis]
    return rank


def axis_ranks(rank: int, axis: str, sizes: Mapping[str, int]) -> list[int]:
    place = coordinates(rank, sizes)
    return [rank_of({**place, axis: index}, sizes) for index in range(sizes.get(axis, 1))]


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
    return {axis: world.split(lines[AXES[AXES.index(axis) - 1]], axis) for axis in AXES}
