"""A mesh of five axes as plain numbers, and the wrong meshes that are known."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

AXES = ("pp", "dp", "ep", "cp", "tp")
Sizes = dict[str, int]
Tables = dict[str, list[Any]]  # sentence -> what it makes of each rank
TWELVE: tuple[Sizes, ...] = (
    {"tp": 2, "dp": 2, "pp": 2}, {"dp": 8}, {"tp": 8}, {"pp": 8}, {"cp": 8}, {"ep": 8},
    {"pp": 4, "tp": 2}, {"tp": 4, "dp": 2}, {"cp": 2, "pp": 2, "dp": 2}, {"ep": 2, "dp": 4},
    {"tp": 2, "cp": 2, "ep": 2}, {"pp": 1, "dp": 1, "ep": 4, "cp": 1, "tp": 2},
)  # fmt: skip
FROM_0 = "ranks are counted from 0"


class Grid(NamedTuple):
    """Ranks on axes, of which the last in `order` runs fastest."""

    sizes: Mapping[str, int]
    order: Sequence[str] = AXES

    @property
    def ranks(self) -> range:
        """All of them."""
        return range(math.prod(self.sizes.values()))

    def __str__(self) -> str:
        return " × ".join(f"{axis} {size}" for axis, size in self.sizes.items()) or "no axes"

    def place(self, rank: int) -> Sizes:
        """A rank's coordinates."""
        place = {}
        for axis in reversed(self.order):
            rank, place[axis] = divmod(rank, self.sizes.get(axis, 1))
        return {axis: place[axis] for axis in AXES if axis in place}

    def rank(self, place: Mapping[str, int]) -> int:
        """The rank at a place."""
        number = 0
        for axis in self.order:
            number = number * self.sizes.get(axis, 1) + place[axis]
        return number

    def line(self, rank: int, axis: str) -> list[int]:
        """The ranks that differ from one in `axis` alone, in the order of that coordinate."""
        place = self.place(rank)
        return [self.rank({**place, axis: i}) for i in range(self.sizes.get(axis, 1))]

    def others(self) -> dict[str, Grid]:
        """The same sizes with the axes in wrong orders."""
        own = (*self.sizes, *(axis for axis in AXES if axis not in self.sizes))
        ours = "the order is pp, dp, ep, cp, tp"
        orders = {
            "tp runs slowest, so its ranks are far apart: it is the innermost axis": AXES[::-1],
            "the axes are in the order of `sizes`: it is AXES that says which is outer": own,
            f"dp is outside pp: {ours}": ("dp", "pp", "ep", "cp", "tp"),
            f"ep is outside dp: {ours}": ("pp", "ep", "dp", "cp", "tp"),
            f"cp is outside ep: {ours}": ("pp", "dp", "cp", "ep", "tp"),
            "tp is outside cp: tp is the innermost axis": ("pp", "dp", "ep", "tp", "cp"),
            "ep is forgotten: there are five axes": ("pp", "dp", "cp", "tp"),
        }
        return {why: Grid(self.sizes, order) for why, order in orders.items()}

    # --- known mistakes ----------------------------------------------------------------------
    def wrong_places(self) -> Tables:
        """Of coordinates, for each rank."""
        ranks, sizes = self.ranks, self.sizes
        right = [self.place(rank) for rank in ranks]
        return {
            **{why: [grid.place(rank) for rank in ranks] for why, grid in self.others().items()},
            "axes that `sizes` does not name are missing: coordinates have all five": [
                {axis: place[axis] for axis in AXES if axis in sizes} for place in right
            ],
            "coordinates are counted from 0": [{a: c + 1 for a, c in p.items()} for p in right],
            FROM_0: [self.place(rank - 1) for rank in ranks],
            "strides are mixed: an axis's stride is the product of the sizes inside it": [
                {a: rank // sizes.get(a, 1) % sizes.get(a, 1) for a in AXES} for rank in ranks
            ],
            "the rest is missing: after the division by its stride a coordinate is modulo its size":
                [{a: rank // self._stride(a) for a in AXES} for rank in ranks],
        }  # fmt: skip

    def wrong_ranks(self) -> Tables:
        """Of ranks at the places."""
        places = [self.place(rank) for rank in self.ranks]
        of_place = Grid(self.sizes, sorted(AXES))
        return {
            **{why: [grid.rank(p) for p in places] for why, grid in self.others().items()},
            "the axes are in the order of `place`: it is AXES that says which is outer": [
                of_place.rank(place) for place in places
            ],
            FROM_0: [rank + 1 for rank in self.ranks],
            "strides are mixed: an axis's stride is the product of the sizes inside it": [
                sum(place[axis] * self.sizes.get(axis, 1) for axis in AXES) for place in places
            ],
        }

    def wrong_lines(self, axis: str) -> Tables:
        """Of lines along one axis, for each rank."""
        ranks, size = self.ranks, self.sizes.get(axis, 1)
        right, at = [self.line(rank, axis) for rank in ranks], [self.place(r)[axis] for r in ranks]
        return {
            **{why: [grid.line(r, axis) for r in ranks] for why, grid in self.others().items()},
            "these are the ranks with the same coordinate on this axis: a line has those that "
            "differ in it, and in nothing else": [[o for o in ranks if at[o] == a] for a in at],
            "the line begins at this rank: it begins at coordinate 0": [
                line[a:] + line[:a] for line, a in zip(right, at, strict=True)
            ],
            "the line begins at this rank, and leaves the mesh": [
                [rank + i * self._stride(axis) for i in range(size)] for rank in ranks
            ],
            "the rank itself is missing": [
                [other for other in line if other != rank] for rank, line in enumerate(right)
            ],
            "these are coordinates: a line has ranks": [list(range(size))] * len(ranks),
            "the ranks of a line ascend": [line[::-1] for line in right],
            FROM_0: [[other + 1 for other in line] for line in right],
            "these are neighbours: only tp's line has those": [
                list(range(rank // size * size, rank // size * size + size)) for rank in ranks
            ],
        }

    def _stride(self, axis: str) -> int:
        inside = AXES[AXES.index(axis) + 1 :]
        return math.prod(self.sizes.get(inner, 1) for inner in inside)
