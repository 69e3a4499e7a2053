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
    # BEGIN SOLUTION: the pieces
    best = _dealt(lengths, ranks, most, key, [ranks] * len(lengths))
    parts = [ranks] * len(lengths)
    mean = sum(length**2 for length in lengths) / ranks
    for factor in range(1, 4 * ranks + 1):  # longer documents over more ranks
        wanted = [round(factor * length**2 / (2 * mean) + 0.5) for length in lengths]
        trial = [min(ranks, max(1, number)) for number in wanted]
        found = _dealt(lengths, ranks, most, key, trial)
        if _slowest(found) < _slowest(best):
            best, parts = found, trial
    before = float("inf")
    while _slowest(best) < before:
        before = _slowest(best)
        for document in range(len(lengths)):
            for number in {max(1, parts[document] - 1), min(ranks, parts[document] + 1)}:
                trial = [*parts[:document], number, *parts[document + 1 :]]
                found = _dealt(lengths, ranks, most, key, trial)
                if _slowest(found) < _slowest(best):
                    best, parts = found, trial
    return [[piece for share in held for piece in share.pieces] for held in best]


def _slowest(held: list[list[Share]]) -> float:
    return max((sum(share.time for share in mine) for mine in held), default=float("inf"))


def _shares(document: int, length: int, parts: int, key: int) -> Iterator[Share]:
    """A document in zigzag: of 2 · parts pieces, a share has one from each end."""
    if parts == 1:
        yield Share(length * (length + 1) // 2, length, [(document, 0, length)])
        return
    bounds = [length * place // (2 * parts) for place in range(2 * parts + 1)]
    for place in range(parts):
        spans = [(bounds[at], bounds[at + 1]) for at in (place, 2 * parts - 1 - place)]
        spans = [(start, end) for start, end in spans if start < end]
        tokens = sum(end - start for start, end in spans)
        if spans:
            pairs = sum(end * (end + 1) - start * (start + 1) for start, end in spans) // 2
            away = max(end for _, end in spans) - tokens
            yield Share(pairs + key * away, tokens, [(document, *span) for span in spans])


def _dealt(
    lengths: Sequence[int], ranks: int, most: int, key: int, parts: list[int]
) -> list[list[Share]]:
    """The longest share first, to the rank with least to do that has room; [] if none has.

    Args:
        lengths: of the documents.
        ranks: how many.
        most: tokens on a rank.
        key: time of a key.
        parts: into how many shares each document is cut.
    """
    shares = [
        share
        for document, (length, number) in enumerate(zip(lengths, parts, strict=True))
        for share in _shares(document, length, number, key)
    ]
    held: list[list[Share]] = [[] for _ in range(ranks)]
    times, tokens = [0] * ranks, [0] * ranks
    for share in sorted(shares, reverse=True):
        free = [rank for rank in range(ranks) if tokens[rank] + share.tokens <= most]
        if not free:
            return []
        rank = min(free, key=lambda rank: times[rank])
        held[rank].append(share)
        times[rank] += share.time
        tokens[rank] += share.tokens
    while _exchanged(held, most):
        pass
    return held


def _exchanged(held: list[list[Share]], most: int) -> bool:
    """Whether the slowest rank could give a share away, perhaps for a shorter one."""
    times = [sum(share.time for share in mine) for mine in held]
    slow = max(range(len(held)), key=lambda rank: times[rank])
    for other in sorted(range(len(held)), key=lambda rank: times[rank]):
        room = most - sum(share.tokens for share in held[other])
        own = most - sum(share.tokens for share in held[slow])
        for mine in held[slow]:
            for theirs in [*held[other], Share(0, 0, [])]:
                time, tokens = mine.time - theirs.time, mine.tokens - theirs.tokens
                if 0 < time < times[slow] - times[other] and -own <= tokens <= room:
                    held[slow].remove(mine)
                    held[other].append(mine)
                    if theirs.pieces:
                        held[other].remove(theirs)
                        held[slow].append(theirs)
                    return True
    return False
    # END SOLUTION
