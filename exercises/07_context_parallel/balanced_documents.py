"""balanced_documents: cut packed documents over ranks so that no rank attends much longer.

Notebook 07. Open: there is no right answer.

Tokens attend to themselves and to those before them in their document. A rank computes pieces, each
the tokens `start` to `end` - 1 of a document; token i takes i + 1. Of each of its documents a rank
receives the tokens before its last `end` that it does not have; each takes `key`. Its time is the
sum.

Valid is a list of (document, start, end) for each rank:
- every token is in one piece, and no piece is empty;
- a rank has at most `most` tokens, 1.1 times the mean;
- the same on two ranks: no clock, seeded generators; 20 s of processor time in all.

Measured: the slowest rank's time over the mean without anything received; the mean of twelve fixed
cases.

Your answer may use nothing of `course_lib`.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

Piece = tuple[int, int, int]  # document, start, end


class Share(NamedTuple):
    """What one rank does of one document."""

    time: int
    tokens: int
    pieces: list[Piece]


def balanced_documents(
    lengths: Sequence[int], ranks: int, most: int, key: int
) -> list[list[Piece]]:
    """Which pieces each rank computes.

    Args:
        lengths: tokens of each document.
        ranks: how many.
        most: tokens on a rank.
        key: time of one token's key and value on their way.
    """
    raise NotImplementedError("balanced_documents: the pieces")
