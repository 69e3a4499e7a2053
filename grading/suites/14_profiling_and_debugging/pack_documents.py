"""pack_documents: every document once, no row too long; the padding is the figure.

Source: Johnson et al., "Worst-case performance bounds for simple one-dimensional packing
algorithms" (1974). No number of rows is below the tokens divided by a row's; over the cases this
bound leaves 1.32 % of padding.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from course_lib.grade.suite import Exercise, Run, check, describe
from grading.references.open import plans

EXERCISE = Exercise(
    title="Open: rows with little padding",
    core=False,
    minutes=30,
    order=13,
    open=("% of the rows is padding", 17.925, 2.9276),
    library=(),
    hints=(
        "Long documents are the difficult ones: place them first, while there is room, and fill "
        "the gaps with short ones.",
        "Place the longest document first, each in the fullest row where it still fits: that is "
        "best fit decreasing. How much room does it leave in the rows, and why?",
        "Fill one row at a time. Begin with the longest document that is left, and look for other "
        "documents whose lengths add up to almost exactly the rest of the row. A dict from sums "
        "to documents finds them.",
    ),
)

Case = tuple[list[int], int]  # lengths, row
ROW = 2048
SPANS = ((400, 1100), (150, 1000), (300, 820))  # of lengths


# --- what runs on the ranks ----------------------------------------------------------------------
def drive(learner: Any, group: Any, cases: list[list[Any]]) -> dict[str, Any]:
    """The rows of each case."""
    return {"plans": [learner.pack_documents(list(lengths), row) for lengths, row in cases]}


# --- the cases, and what is looked at ------------------------------------------------------------
def _case(draw: plans.Draw) -> Case:
    count, kind = draw(90, 141, 1)[0], draw(0, len(SPANS), 1)[0]
    return draw(*SPANS[kind], count), ROW


def _check_rows(run: Run, case: Case, rows: Any) -> None:
    """That the rows are valid."""
    lengths, row = case
    run.true(
        plans.is_whole(rows, 2),
        "this is not a list of rows, each a list of document numbers",
        measured=describe(rows),
    )
    counts = Counter(number for documents in rows for number in documents)
    there = range(len(lengths))
    for number in (number for number in sorted(counts) if number not in there):
        run.fail(f"there is no document {number}", expected=f"0 to {len(lengths) - 1}")
    for number in (number for number in there if counts[number] != 1):
        run.fail(f"document {number} of {len(lengths)} is in {counts[number]} rows", expected="1")
    for place, documents in enumerate(rows):
        run.true(bool(documents), f"row {place} is empty: it would be nothing but padding")
        what = f"the number of tokens in row {place}"
        run.at_most(sum(lengths[number] for number in documents), row, what)


def _padding(run: Run, case: Case, rows: list[list[int]]) -> float:
    """Percent of the rows."""
    _check_rows(run, case, rows)
    lengths, row = case
    return 100 * (1 - sum(lengths) / (len(rows) * row))


@check("every document is in one row, and no row is too long", points=3, code="E")
def check_rows(run: Run) -> None:
    """E: hidden documents."""
    draw = plans.hidden(run)
    cases = [_case(draw) for _ in range(4)] + [([7], 7), ([5, 5, 5], 9)]
    plans.judged(run, drive, cases, _check_rows)


@check("the figure over the twelve fixed cases", points=2, code="S")
def check_padding(run: Run) -> None:
    """S: the mean padding."""
    run.figure = plans.figure(run, drive, "pack_documents", _case, _padding)
