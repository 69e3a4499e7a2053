"""variant: with strides"""

import math
from collections.abc import Mapping

from course_lib.comm import Group

AXES = ("pp", "dp", "ep", "cp", "tp")


def stride(axis: str, sizes: Mapping[str, int]) -> int:
    return math.prod(sizes.get(inner, 1) for inner in AXES[AXES.index(axis) + 1 :])


def coordinates(rank: int, sizes: Mapping[str, int]) -> dict[str, int]:
    return {axis: rank // stride(axis, sizes) % sizes.get(axis, 1) for axis in AXES}


def rank_of(place: Mapping[str, int], sizes: Mapping[str, int]) -> int:
    return sum(place[axis] * stride(axis, sizes) for axis in AXES)


def axis_ranks(rank: int, axis: str, sizes: Mapping[str, int]) -> list[int]:
    step, size = stride(axis, sizes), sizes.get(axis, 1)
    first = rank - coordinates(rank, sizes)[axis] * step
    return list(range(first, first + size * step, step))


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
