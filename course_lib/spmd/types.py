"""What a tensor of a distributed program is on one axis of the mesh: replicated, sharded, ...

Notebook: 06 Tensor parallel (types of a distributed tensor).
Source: DTensor's placements (Replicate, Shard, Partial); JAX's sharding in types; the SPMD types of
E. Yang and others (`spmd_types`, used by torchtitan), which add what the gradient of each is.
Costs nothing: a type is a statement about values that are there already.
The production version also tells R apart from I, the same value with a gradient that is whole.

    type   the true value, from the values x_r of the ranks    the type of its gradient
    R      x_0, and every other rank has the same              P where ranks go on differently,
                                                               R where all go on alike
    S(d)   the x_r one behind the other along dim d            S(d)
    P      the sum of the x_r                                  R
    V      not known: the ranks just have different ones       V
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Type(NamedTuple):
    """The type on one axis.

    Attributes:
        letter: R, S, P or V.
        dim: of S, the dim along which the pieces lie; else -1.
    """

    letter: str
    dim: int = -1

    def __str__(self) -> str:
        return f"S({self.dim})" if self.letter == "S" else self.letter


R, P, V = Type("R"), Type("P"), Type("V")


def S(dim: int) -> Type:  # noqa: N802 - the letter that everybody writes
    """Sharded along a dim."""
    return Type("S", dim)


class Piece(NamedTuple):
    """Which part of another tensor this is, for each rank: for types of slices.

    Attributes:
        parent: which value was cut.
        dim: along which.
        size: of the dim, before.
        spans: (first, one behind the last, step) by rank.
    """

    parent: int
    dim: int
    size: int
    spans: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class Value:
    """What is known of a tensor, on all axes.

    Attributes:
        types: one for each axis.
        made: the operation that made it what it is.
        line: where in the program.
        sure: that it is replicated was derived, or cannot be chance; a constant's equality can.
        zero: zeros, which are of any type.
        shared: axes on whose number of ranks it was divided, so that its sum is meant.
        summed: axes over which a collective has summed it.
        torn: axes on which it was the same everywhere until each rank wrote a part of it.
        added: where a replicated summand went into a partial sum, by axis; "" if nowhere.
        piece: the part of another tensor that it is.
    """

    types: tuple[Type, ...]
    made: str = ""
    line: str = ""
    sure: bool = True
    zero: bool = False
    shared: frozenset[int] = frozenset()
    summed: frozenset[int] = frozenset()
    torn: frozenset[int] = frozenset()
    added: tuple[str, ...] = ()
    piece: Piece | None = None


class Axis(NamedTuple):
    """An axis of the mesh, as far as the cell has used it.

    Attributes:
        name: `tp`, `dp`, `world`, ...
        lines: the groups that lie on it: together they hold every rank once.
    """

    name: str
    lines: tuple[tuple[int, ...], ...]

    @property
    def size(self) -> int:
        """How many ranks a group has."""
        return len(self.lines[0])

    def holds(self, equal_on: Sequence[object]) -> bool:
        """Whether what the ranks have (in rank order) is the same within every group."""
        return all(len({equal_on[rank] for rank in line}) == 1 for line in self.lines)
