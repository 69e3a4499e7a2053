"""owner_plan: owners for matrices, so that no rank computes much longer than the others.

Notebook 19. Open: there is no right answer.

pieces[n][i] elements of matrix n are on rank i. Its owner is sent all others, computes

    4·r²·c + 2·r³ operations, r the shorter side and c the longer one,

and sends as many elements back. So it is cheap to leave a matrix where most of it is, but the
operations are then divided badly. `owner_muon` divides them well, whatever that sends; here all
ranks together may send no more than `limit` elements, there and back.

Valid is a list of each matrix's owner:
- at most `limit` elements sent; where most of it is for each matrix is always within that;
- the same on two ranks: no clock, seeded generators; 20 s of processor time in all.

Measured: the busiest owner's operations, over a bound that no plan can beat: the mean over the
ranks, or the largest matrix if that is more; the mean of twelve fixed cases.

Your answer may use nothing of `course_lib`.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations

Change = list[tuple[int, int]]  # matrices, each with its new owner


def owner_plan(
    shapes: Sequence[tuple[int, int]], pieces: Sequence[Sequence[int]], limit: int
) -> list[int]:
    """The owner of each matrix.

    Args:
        shapes: (rows, columns) of each matrix.
        pieces: for each matrix the number of elements that each rank has of it.
        limit: elements that all ranks together may send in a step.
    """
    raise NotImplementedError("owner_plan: the owners")
