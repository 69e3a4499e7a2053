"""Ranks on named axes: the grid from which every parallelism takes its group.

Notebook: 00 Ranks and the ledger (hello_mesh), 13 3D parallelism (build_mesh).
Paper: Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using
Megatron-LM" (2021), section 3; words as in torch.distributed.device_mesh.
Costs: one group for each line of the grid, made once.
The production version makes groups lazily and names sub-meshes that are flattened.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping

from course_lib.comm.errors import CommError
from course_lib.comm.group import Group

AXES = ("pp", "dp", "ep", "cp", "tp")


def coordinates(rank: int, sizes: Mapping[str, int]) -> dict[str, int]:
    """Where `rank` lies on a grid whose last axis runs fastest.

    With sizes {"pp": 2, "tp": 4}, rank 5 is {"pp": 1, "tp": 1}: neighbours on the last axis have
    neighbouring ranks, so they share a node and its fast links.
    """
    place, rest = {}, rank
    for axis, size in reversed(list(sizes.items())):
        place[axis], rest = rest % size, rest // size
    return {axis: place[axis] for axis in sizes}


def rank_of(place: Mapping[str, int], sizes: Mapping[str, int]) -> int:
    """The rank at a place of the grid: the inverse of `coordinates`."""
    rank = 0
    for axis, size in sizes.items():
        rank = rank * size + place[axis]
    return rank


def axis_lines(axis: str, sizes: Mapping[str, int]) -> list[list[int]]:
    """All lines of the grid along one axis: the ranks that differ in that coordinate alone."""
    others = [name for name in sizes if name != axis]
    lines = []
    for fixed in itertools.product(*(range(sizes[name]) for name in others)):
        place = dict(zip(others, fixed, strict=True))
        lines.append([rank_of({**place, axis: i}, sizes) for i in range(sizes[axis])])
    return lines


class Mesh:
    """The grid of ranks, and this rank's group on every axis.

    Args:
        world: the group of all ranks. Making a mesh is collective over it.
        sizes: axis name to size, outermost first; tp innermost by convention (`AXES`). The product
            is the size of the world.

    Raises:
        CommError: the product of the sizes is not the size of the world, or a size is below 1.
    """

    def __init__(self, world: Group, sizes: Mapping[str, int]) -> None:
        if min(sizes.values(), default=1) < 1 or math.prod(sizes.values()) != world.size:
            shape = " × ".join(f"{axis} {size}" for axis, size in sizes.items())
            raise CommError(
                f"a mesh of {shape} = {math.prod(sizes.values())} ranks",
                f"a world of {world.size} ranks",
                "every rank has exactly one place on the mesh",
            )
        self.world = world
        self.sizes = dict(sizes)
        self._groups = {axis: world.split(axis_lines(axis, sizes), axis) for axis in sizes}

    def __getitem__(self, axis: str) -> Group:
        """This rank's group on `axis`.

        Raises:
            CommError: the mesh has no such axis.
        """
        if axis not in self._groups:
            raise CommError(
                f"the axis {axis!r} of a mesh",
                f"a mesh with the axes {', '.join(self.sizes)}",
                "a group exists only for the axes that the mesh was made with",
            )
        return self._groups[axis]

    def get_coordinate(self) -> dict[str, int]:
        """This rank's place: axis name to index."""
        return coordinates(self.world.index, self.sizes)

    def get_local_rank(self, axis: str) -> int:
        """This rank's index on `axis`."""
        return self[axis].index
