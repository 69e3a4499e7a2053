"""Ranks on named axes: the grid from which every parallelism takes its group.

Notebook: 00 Ranks and the ledger (hello_mesh), 13 3D parallelism (build_mesh).
Paper: Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using
Megatron-LM" (2021), section 3; words as in torch.distributed.device_mesh.
Costs: one group a rank for each axis, and for each combination of axes that is asked for; each is
made once.
The production version (DeviceMesh) makes groups lazily too, and can give out sub-meshes.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

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


def axis_lines(axes: str | Sequence[str], sizes: Mapping[str, int]) -> list[list[int]]:
    """All lines of the grid along one axis: the ranks that differ in that coordinate alone.

    Along several axes these are planes, blocks, ...: the ranks that differ in those alone. In each,
    ranks ascend.
    """
    along = {axes} if isinstance(axes, str) else set(axes)
    others = [name for name in sizes if name not in along]
    lines: dict[tuple[int, ...], list[int]] = {}
    for rank in range(math.prod(sizes.values())):
        place = coordinates(rank, sizes)
        lines.setdefault(tuple(place[name] for name in others), []).append(rank)
    return list(lines.values())


class Mesh:
    """The grid of ranks, and this rank's group on every axis, or on several together.

    Args:
        world: the group of all ranks. Making a mesh is collective over it.
        sizes: axis name to size, outermost first; tp innermost by convention (`AXES`). The product
            is the size of the world. An axis of `AXES` that is left out has size 1.

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
        self._groups: dict[tuple[str, ...], Group] = {}
        # Keys are the axes longer than 1: two names for the same ranks share one transport.
        self._made = {self._longer(self.sizes): world}
        for axes in ((), *((axis,) for axis in sizes)):
            self._groups[axes] = self._make(axes)

    def __getitem__(self, axes: str | tuple[str, ...]) -> Group:
        """This rank's group on an axis, or on several: `mesh["tp"]`, `mesh["dp", "cp"]`.

        The group on several axes has all ranks that differ from this one in those coordinates
        alone, in rank order, and is called `dp_cp`, in the order of `AXES`. When it is asked for
        the first time it is made, which is collective over the world.

        Raises:
            CommError: the mesh has no such axis.
        """
        given = {axes} if isinstance(axes, str) else set(axes)
        for axis in given:
            self._check_axis(axis)
        named = tuple(axis for axis in dict.fromkeys((*AXES, *self.sizes)) if axis in given)
        if named not in self._groups:
            self._groups[named] = self._make(named)
        return self._groups[named]

    def _make(self, axes: tuple[str, ...]) -> Group:
        """The group of these axes; if one of the same ranks exists, that one under this name."""
        longer = self._longer(axes)
        name = "_".join(axes)
        if longer not in self._made:
            self._made[longer] = self.world.split(axis_lines(longer, self.sizes), name)
        made = self._made[longer]
        return made.under(name)

    def _longer(self, axes: Collection[str]) -> tuple[str, ...]:
        return tuple(axis for axis in self.sizes if axis in axes and self.sizes[axis] > 1)

    def _check_axis(self, axis: str) -> None:
        if axis not in self.sizes and axis not in AXES:
            raise CommError(
                f"the axis {axis!r} of a mesh",
                f"a mesh with the axes {', '.join(self.sizes)}",
                "a group exists only for the axes that the mesh was made with",
            )

    def get_coordinate(self) -> dict[str, int]:
        """This rank's place: axis name to index."""
        return coordinates(self.world.index, self.sizes)

    def get_local_rank(self, axis: str) -> int:
        """This rank's index on `axis`."""
        return self[axis].index
