"""owner_plan: choose owners for matrices, so that no rank computes much longer than the others.

Notebook 19. This exercise is open: it has no single right answer. Valid plans are compared by the
operations of the busiest rank.

The optimizer's step for a matrix needs the whole matrix on one rank, its owner, but the matrices
are cut into pieces: rank i has pieces[n][i] elements of matrix n, possibly none. The other ranks
send their elements to the owner. With r the shorter side of the matrix and c the longer one, the
owner computes

    4·r²·c + 2·r³ operations,

and sends the result back, as many elements as it received. Few elements are sent if each matrix is
owned by the rank that has most of it, but then some ranks compute much more than others.
`owner_muon` divides the operations evenly and ignores what is sent. Here, all ranks together may
send at most `limit` elements, to the owners and back.

You return one owner for each matrix. A plan is valid if
- every owner is a rank, and at most `limit` elements are sent in all; this always holds if each
  matrix is owned by the rank that has most of it;
- two ranks that get the same arguments return the same plan: look at no clock, and seed every
  random generator. All cases of a check together may take 20 s of processor time.

Measured: the operations of the rank with the most, divided by a lower bound for them: the mean over
the ranks or the operations for the largest matrix, whichever is more. Less is better. The figure is
the mean over twelve fixed cases.

Your answer may use nothing of `course_lib`.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations

Change = list[tuple[int, int]]  # some matrices, each with its new owner


def owner_plan(
    shapes: Sequence[tuple[int, int]], pieces: Sequence[Sequence[int]], limit: int
) -> list[int]:
    """Chooses an owner for each matrix.

    Args:
        shapes: (rows, columns) of each matrix.
        pieces: for each matrix, how many of its elements each rank has; the list's length is the
            number of ranks.
        limit: elements that all ranks together may send, to the owners and back.

    Returns:
        The rank that owns each matrix, as an int from 0.
    """
    raise NotImplementedError("owner_plan: the owners")
