"""balanced_documents: every token once, ranks about equally full; the slowest rank is the figure.

Source: Grattafiori et al., "The Llama 3 Herd of Models" (2024), section 3.3.2, for a piece from
each end; Wang et al., "WLB-LLM" (2025), for cuts document by document. The bound is 1.0: attention
divided evenly, and no key sent.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from course_lib.grade.suite import Exercise, Run, check, describe
from grading.references.open import plans

EXERCISE = Exercise(
    title="Open: packed documents over ranks",
    core=False,
    minutes=60,
    order=6,
    open=("times the mean work on the slowest rank", 1.5715, 1.0705),
    library=(),
    hints=(
        "A document that lies on one rank as a whole needs no communication. Only a document that "
        "takes longer than the mean of a rank must be cut; the others need not be.",
        "Cut a document for k ranks in zigzag: into 2k pieces, of which each rank gets one from "
        "the front and one from the back. Then hand out these shares, the longest first, each to "
        "the rank that has the least to do and room for its tokens.",
        "Choose k from the square of the document's length. Then change one document's k by one "
        "at a time, and swap shares between the slowest rank and others, as long as that helps.",
    ),
)


class Case(NamedTuple):
    """The function's arguments."""

    lengths: list[int]
    ranks: int
    most: int
    key: int


# --- what runs on the ranks ----------------------------------------------------------------------
def drive(learner: Any, group: Any, cases: list[list[Any]]) -> dict[str, Any]:
    """The pieces of each case."""
    return {"plans": [learner.balanced_documents(*case) for case in cases]}


# --- the cases, and what is looked at ------------------------------------------------------------
def _case(draw: plans.Draw) -> Case:
    """Many short documents and a few of several thousand tokens."""
    ranks, count = draw(4, 9, 1)[0], draw(12, 41, 1)[0]
    lengths = [100 + number**3 // 10**5 for number in draw(100, 900, count)]
    return Case(lengths, ranks, -(-sum(lengths) * 11 // (10 * ranks)), draw(50, 500, 1)[0])


def _check_pieces(run: Run, case: Case, held: Any) -> None:
    """That the pieces are valid."""
    whole = plans.is_whole(held, 3) and len(held) == case.ranks
    run.true(
        whole and all(len(piece) == 3 for mine in held for piece in mine),
        "this is not a list of (document, start, end) for each rank",
        expected=f"{case.ranks} lists",
        measured=describe(held),
    )
    for rank, mine in enumerate(held):
        for document, start, end in mine:
            run.true(document in range(len(case.lengths)), f"there is no document {document}")
            run.true(
                0 <= start < end <= case.lengths[document],
                f"document {document} has no tokens from {start} up to {end}",
                rank=rank,
            )
        what = "the number of tokens"
        run.at_most(sum(end - start for _, start, end in mine), case.most, what, rank=rank)
    for document, length in enumerate(case.lengths):
        spans = sorted((s, e) for mine in held for other, s, e in mine if other == document)
        ends = [0, *(end for _, end in spans)]
        for (start, _), end in zip([*spans, (length, length)], ends, strict=True):
            if start != end:
                how = "in no piece" if start > end else "in two pieces"
                run.fail(f"a token of document {document} is {how}: token {min(start, end)}")


def _time(case: Case, mine: list[tuple[int, int, int]]) -> int:
    """How long a rank takes."""
    time, own, upto = 0, [0] * len(case.lengths), [0] * len(case.lengths)
    for document, start, end in mine:
        time += (end * (end + 1) - start * (start + 1)) // 2
        own[document] += end - start
        upto[document] = max(upto[document], end)
    return time + case.key * (sum(upto) - sum(own))


def _slowest(run: Run, case: Case, held: list[list[tuple[int, int, int]]]) -> float:
    """The slowest rank's time over the mean one without keys."""
    _check_pieces(run, case, held)
    pairs = sum(length * (length + 1) // 2 for length in case.lengths)
    return max(_time(case, mine) for mine in held) * case.ranks / pairs


@check("every token is in one piece, and no rank has too many", points=3, code="E")
def check_pieces(run: Run) -> None:
    """E: hidden documents; one long one; one rank; as many ranks as documents; single tokens."""
    draw = plans.hidden(run)
    cases = [_case(draw) for _ in range(4)]
    cases += [Case([4000], 4, 1100, 100), Case([5, 3], 1, 9, 1), Case([80] * 6, 6, 88, 10)]
    cases += [Case([1, 200, 1, 1], 2, 112, 20)]
    plans.judged(run, drive, cases, _check_pieces)


@check("the figure over the twelve fixed cases", points=2, code="S")
def check_time(run: Run) -> None:
    """S: the mean of the slowest rank's time."""
    run.figure = plans.figure(run, drive, "balanced_documents", _case, _slowest)
