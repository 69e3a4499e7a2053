"""Holds the name that a reader gives to a fault, a line and ranks, against the right ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from course_lib.grade.suite import Run

FORM = 'FAULT["{0}"] = ("the line as it was given", "all" or (0, 3))'


def judge_name(
    run: Run, table: Any, exhibit: str, lines: Iterable[str], ranks: Iterable[Any]
) -> None:
    """Fails unless `table[exhibit]` is one of these lines with one of these groups of ranks.

    Args:
        run: of the check.
        table: the reader's, from exhibit to (line, ranks).
        exhibit: its name.
        lines: those that are right; spaces and the kind of quotes do not count.
        ranks: the words and ascending tuples that are right.
    """
    said: Any = table.get(exhibit) if isinstance(table, dict) else None
    fits = isinstance(said, (list, tuple)) and len(said) == 2 and isinstance(said[0], str)
    run.true(
        fits,
        f"FAULT has no line with ranks for {exhibit}",
        expected=FORM.format(exhibit),
        measured=repr(said)[:80],
    )
    line, who = said
    run.true(  # the same words for each exhibit, so that a card says them once
        bool(line.strip()),
        "FAULT names no line of this exhibit yet",
        expected=FORM.format("exhibit"),
        cause="find the line that makes the symptom, and the ranks that suffer",
    )
    run.true(
        _plain(line) in map(_plain, lines),
        f"this line of {exhibit} is not the one",
        measured=line.strip()[:90],
        cause="take a whole line of the code as it was given, one "
        "that does a wrong thing, or a right one at the wrong place; not the line that only "
        "shows the symptom",
    )
    if isinstance(who, (list, tuple, set)):
        who = tuple(sorted(who, key=repr))
    run.true(
        repr(who) in map(repr, ranks),
        f"the line of {exhibit} is right, its ranks are not",
        measured=repr(who)[:60],
        cause="hold each rank's result against one process's",
    )


def _plain(line: str) -> str:
    return "".join(line.split()).replace("'", '"')
