"""The groups of a mesh's axes: who is in them, in which steps, and in which nodes.

Paper: Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using
Megatron-LM" (2021), section 3: which axis goes over which links.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import permutations

from course_lib.trace import Refusal

Axes = tuple[str, ...]
Group = tuple[int, ...]

# Names that every mesh knows; one that it was not given has size 1.
AXES = ("pp", "dp", "ep", "cp", "tp")
# Ranks that have the same parameters and other tokens: their gradients become one.
REPLICAS = ("dp", "ep", "cp")


class MeshGroups:
    """A grid of ranks on nodes, as counts alone. Axes of size 1 are left out.

    Args:
        sizes: axis name to size, outermost first, as a `Mesh` is made with.
        per_node: how many neighbouring ranks share a node; the last node may have fewer.

    Attributes:
        given: the axes' names, those of size 1 too.
        sizes: axis name to size, of axes longer than 1.
        strides: axis name to how many ranks it is to the next: the product of the sizes further in.
        per_node: the same as given.
        world: number of ranks.

    Raises:
        Refusal: a size or `per_node` is below 1.
    """

    def __init__(self, sizes: Mapping[str, int], per_node: int) -> None:
        least = min((*sizes.values(), per_node))
        if least < 1:
            raise Refusal(
                f"a mesh of {shape_words(sizes)} on nodes of {per_node}",
                f"a number below 1: {least}",
                "an axis that is not used has size 1, and a node has a rank at least",
            )
        self.given = tuple(sizes)
        self.sizes = {axis: size for axis, size in sizes.items() if size > 1}
        names, counts = list(self.sizes), list(self.sizes.values())
        self.strides = {name: math.prod(counts[i + 1 :]) for i, name in enumerate(names)}
        self.per_node = per_node
        self.world = math.prod(sizes.values())
        self._found: dict[Axes, list[Group]] = {}

    @property
    def nodes(self) -> int:
        """How many nodes there are."""
        return -(-self.world // self.per_node)

    def node(self, rank: int) -> int:
        """The node that a rank is on."""
        return rank // self.per_node

    def members(self, node: int) -> range:
        """The ranks on a node."""
        first = node * self.per_node
        return range(first, min(first + self.per_node, self.world))

    def place(self, rank: int) -> dict[str, int]:
        """A rank's coordinates: axis name to index."""
        return {axis: rank // self.strides[axis] % size for axis, size in self.sizes.items()}

    def named(self, name: str) -> Axes:
        """The axes longer than 1 that a name as the ledger has it stands for: `tp`, `dp_cp`.

        Raises:
            Refusal: there is no such axis.
        """
        axes = self.given if name == "world" else tuple(name.split("_"))
        if not set(axes) <= {*AXES, *self.given}:
            raise Refusal(
                f"the axis {name!r} of a mesh",
                f"the axes {', '.join(self.given)}",
                "a name is an axis, several with _ between them, or world for all",
            )
        return tuple(axis for axis in self.sizes if axis in axes)

    def groups(self, axes: Axes) -> list[Group]:
        """All groups along these axes: ranks that differ in those coordinates alone, ascending."""
        if axes not in self._found:
            others = [(self.strides[a], size) for a, size in self.sizes.items() if a not in axes]
            found: dict[Group, list[int]] = {}
            for rank in range(self.world):
                key = tuple(rank // stride % size for stride, size in others)
                found.setdefault(key, []).append(rank)
            self._found[axes] = [tuple(group) for group in found.values()]
        return self._found[axes]

    def spans(self, group: Sequence[int]) -> int:
        """How many nodes a group is on."""
        return len({self.node(rank) for rank in group})

    def steps(self, axes: Axes) -> list[int]:
        """How far it is from one member of a group to the next: one number if always as far."""
        group = self.groups(axes)[0]
        return sorted({b - a for a, b in zip(group, group[1:], strict=False)})

    def combinations(self) -> list[Axes]:
        """Axes whose groups matter together as well as each alone: those of gradients.

        All ranks of dp × ep × cp have the same parameters, but of experts those of dp × cp have.
        """
        dense = tuple(axis for axis in self.sizes if axis in REPLICAS)
        experts = tuple(axis for axis in dense if axis != "ep")
        return [axes for axes in dict.fromkeys((experts, dense)) if len(axes) > 1]

    def between(self, axes: Axes) -> float:
        """The share of what is sent along these axes that goes from one node to another.

        Counted over the links that are used alike: from stage to stage on pp, from each to each on
        ep (all-to-all), on any other a ring in the order of ranks.
        """
        used = [link for group in self.groups(axes) for link in links(axes, group)]
        return sum(self.node(a) != self.node(b) for a, b in used) / max(1, len(used))


def links(axes: Axes, group: Group) -> list[tuple[int, int]]:
    """From whom to whom a group of these axes sends."""
    if axes == ("ep",):
        return list(permutations(group, 2))
    after = group[1:] if axes == ("pp",) else group[1:] + group[:1]
    return list(zip(group, after, strict=False))


def split_bytes(
    bytes_by_axis: Mapping[str, float], sizes: Mapping[str, int], ranks_per_node: int
) -> dict[str, tuple[float, float]]:
    """What a rank sends on each axis, split into inside its node and between nodes.

    Args:
        bytes_by_axis: bytes that a rank sends in a step, the mean over all ranks, by the axis's
            name as the ledger has it: `tp`, `dp_ep_cp`, `world`. Names that stand for the same
            ranks, as `dp` and `dp_ep_cp` if ep and cp have size 1, are added up.
        sizes: axis name to size, outermost first, as a `Mesh` is made with.
        ranks_per_node: how many neighbouring ranks share a node.

    Returns:
        Inside and between by axis: `tp`, `dp×cp`; innermost axes first, then several together. A
        group on several nodes is split as a ring in rank order splits it; on pp by neighbouring
        stages, on ep with the same to each.

    Raises:
        Refusal: the mesh has no such axis, or bytes were sent where there is but one rank.
    """
    mesh = MeshGroups(sizes, ranks_per_node)
    return {label(axes, mesh): both for axes, both in by_axes(bytes_by_axis, mesh).items()}


def by_axes(
    bytes_by_axis: Mapping[str, float], mesh: MeshGroups
) -> dict[Axes, tuple[float, float]]:
    """The same, by the axes longer than 1."""
    sums: dict[Axes, float] = {}
    for name, count in bytes_by_axis.items():
        axes = mesh.named(name)
        if count < 0 or (count and not axes):
            raise Refusal(
                f"{count:g} bytes on the axis {name!r}",
                f"groups of {math.prod(mesh.sizes[axis] for axis in axes)}",
                "a rank alone sends nothing, and nobody sends less than that",
            )
        if axes:
            sums[axes] = sums.get(axes, 0) + count
    names = list(mesh.sizes)[::-1]
    order = sorted(sums, key=lambda axes: (len(axes), [names.index(axis) for axis in axes]))
    shares = {axes: mesh.between(axes) for axes in order}
    return {axes: (sums[axes] * (1 - shares[axes]), sums[axes] * shares[axes]) for axes in order}


def label(axes: Axes, mesh: MeshGroups) -> str:
    """`tp`, `dp×cp`, `all but tp`, `all axes`."""
    missing = [axis for axis in mesh.sizes if axis not in axes]
    if len(axes) > 1 and not missing:
        return "all axes"
    return f"all but {missing[0]}" if len(axes) > 3 and len(missing) == 1 else "×".join(axes)


def shape_words(sizes: Mapping[str, int]) -> str:
    """`pp 2 × tp 4`."""
    return " × ".join(f"{axis} {size}" for axis, size in sizes.items())
