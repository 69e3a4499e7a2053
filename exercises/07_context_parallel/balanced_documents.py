"""balanced_documents: cut packed documents over ranks so that no rank attends much longer.

Notebook 07. This exercise is open: it has no single right answer. Valid answers are compared by the
time of the slowest rank.

A token attends to itself and to the tokens before it in its own document. Each rank computes some
pieces; a piece (document, start, end) is the tokens `start` to `end` - 1 of a document. The time of
a rank is the sum of two parts:
- Attention: token i of a document, counted from 0, takes i + 1.
- Communication: of every document that the rank has a piece of, it needs the keys and values of all
  tokens before the largest `end` among its pieces. It receives those of the tokens that it does not
  have itself, and each such token takes `key`.

An answer is valid if
- it has one list of pieces for each rank, which may be empty;
- every token of every document is in exactly one piece, and no piece is empty;
- no rank has more than `most` tokens, which is 1.1 times the mean;
- two ranks that get the same arguments return the same answer: look at no clock, and seed every
  random generator. All cases of a check together may take 20 s of processor time.

Measured: the time of the slowest rank, divided by the mean time of the ranks if they received
nothing; less is better. The figure is the mean over twelve fixed cases.

Your answer may use nothing of `course_lib`.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

Piece = tuple[int, int, int]  # document, start, end


class Share(NamedTuple):
    """The part of one document that one rank computes; yours to use or not."""

    time: int
    tokens: int
    pieces: list[Piece]


def balanced_documents(
    lengths: Sequence[int], ranks: int, most: int, key: int
) -> list[list[Piece]]:
    """Decides which pieces each rank computes.

    Args:
        lengths: number of tokens of each document.
        ranks: number of ranks.
        most: the largest number of tokens that a rank may have.
        key: the time that it takes to receive one token's key and value.

    Returns:
        For each rank its pieces (document, start, end), in any order; documents count from 0.
    """
    raise NotImplementedError("balanced_documents: the pieces")
