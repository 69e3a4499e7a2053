"""Which ranks do the same on the same shapes: of those, one is run and stands for all.

Notebook: 13 The mesh (a cluster in the cell).
Source: the symmetry that ASTRA-sim and vTrain use: replicas differ in values, not in work.
Costs one program for each distinct rank. What is declared is believed: a wrong declaration is found
only where a group is cut unevenly, or where calls do not fit.
The production version runs every rank, since only there can one of them be slow.

It is declared by the mesh: `pp8 dp8* tp8*` is a mesh of 8 × 8 × 8 ranks, the last axis fastest, of
which ranks that differ on the starred axes alone do the same.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from course_lib.comm import coordinates
from course_lib.comm.mesh import rank_of
from course_lib.trace import Refusal

WORD = re.compile(r"([a-z]+)(\d+)(\*?)")


class Fold:
    """Every rank's representative.

    Args:
        world: how many ranks there are.
        mesh: axes with their sizes, outermost first, those of equal ranks with a star; "" if every
            rank is to be run.

    Attributes:
        representatives: the ranks that are run, ascending.

    Raises:
        Refusal: the words are no mesh, or one of another number of ranks.
    """

    def __init__(self, world: int, mesh: str = "") -> None:
        words = [
            WORD.fullmatch(word) for word in (mesh.replace(",", " ") or f"rank{world}").split()
        ]
        sizes = {word[1]: int(word[2]) for word in words if word}
        if None in words or len(sizes) < len(words) or math.prod(sizes.values()) != world:
            raise Refusal(
                f"equal ranks of the mesh {mesh!r}",
                f"{world} ranks",
                "write each axis with its size, a star for equal ranks, as in pp8 dp8* tp8*; "
                "the product of the sizes is the number of ranks",
            )
        self.world, self.sizes = world, sizes
        self._equal = {word[1] for word in words if word and word[3]}
        self._of = [self._first_equal(rank) for rank in range(world)]
        self.representatives = tuple(sorted(set(self._of)))

    def of(self, rank: int) -> int:
        """The rank that stands for this one."""
        return self._of[rank]

    def _first_equal(self, rank: int) -> int:
        place = coordinates(rank, self.sizes)
        return rank_of(
            {axis: 0 if axis in self._equal else place[axis] for axis in place}, self.sizes
        )

    def folded(self, ranks: Sequence[int]) -> tuple[int, ...]:
        """The representatives of a group's ranks, each once, in the order of the group."""
        return tuple(dict.fromkeys(self.of(rank) for rank in ranks))
