"""Answers whose verdict is known: wrong ones as edits of the solution, right ones whole.

A file `grading/mutants/LESSON/NAME.py` lists both for one exercise, as WRONG and RIGHT. An edit
reads like a diff without line numbers: lines begin with `-` (goes), `+` (comes) or a space (stays,
and says where), and a line `@@` separates places that lie apart.
"""

from __future__ import annotations

import runpy
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path

from course_lib.trace import Refusal

APART = "@@"


@dataclass(frozen=True)
class Wrong:
    """A wrong answer: what somebody who has not understood one thing would write.

    Attributes:
        name: the slip, as a file's name without `.py`.
        words: what the score card must say about it; words of the fault, not just "wrong value".
        edits: of the solution; each place must occur there exactly once.
        why: what is wrong, where the name does not say it.
    """

    name: str
    words: list[str]
    edits: str
    why: str = ""


@dataclass(frozen=True)
class Right:
    """A right answer that is written otherwise than the solution.

    Attributes:
        name: as of a file, without `.py`.
        differs: from the solution, in what.
        source: the whole text.
    """

    name: str
    differs: str
    source: str = field(repr=False)


def known_answers(path: Path) -> tuple[list[Wrong], list[Right]]:
    """The wrong and the right answers in a file; none if there is no such file.

    Raises:
        Refusal: two have the same name.
    """
    if not path.exists():
        return [], []
    lists = runpy.run_path(str(path))
    wrong, right = lists["WRONG"], lists["RIGHT"]
    names = [each.name for each in (*wrong, *right)]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise Refusal(
            f"the answers in {path}",
            f"two answers of the name {twice[0]}",
            "a name stands for one of them",
        )
    return wrong, right


def harmless_slips(path: Path) -> tuple[str, ...]:
    """Slips of a group that change nothing in an exercise: the list SAME in its file, if any."""
    return tuple(runpy.run_path(str(path)).get("SAME", ())) if path.exists() else ()


def edited(solution: str, edits: str) -> str:
    """The solution's text with edits made.

    Raises:
        Refusal: lines that an edit names are not in the solution, or occur twice.
    """
    lines = solution.splitlines()
    places = [_place(lines, hunk) for hunk in _hunks(edits)]
    for first, count, new in sorted(
        places, reverse=True
    ):  # from below: what is above stays in place
        lines[first : first + count] = new
    return "\n".join(lines) + "\n"


def _hunks(edits: str) -> list[list[str]]:
    """The lines of each place; an empty line is one that stays empty."""
    hunks: list[list[str]] = [[]]
    for line in edits.strip("\n").split("\n"):
        if line == APART:
            hunks.append([])
        elif line[:1] not in ("", " ", "-", "+"):
            raise Refusal(
                "an edit of the solution",
                f"the line {line!r}",
                "a line of an edit begins with -, + or a space",
            )
        else:
            hunks[-1].append(line)
    return hunks


def _place(lines: list[str], hunk: list[str]) -> tuple[int, int, list[str]]:
    """Where the old lines of a hunk begin, how many they are, and the new ones."""
    old = [line[1:] for line in hunk if not line.startswith("+")]
    new = [line[1:] for line in hunk if not line.startswith("-")]
    starts = range(len(lines) - len(old) + 1)
    found = [first for first in starts if lines[first : first + len(old)] == old]
    if len(found) != 1 or not old:
        raise Refusal(
            f"an edit of the solution's lines {old}",
            f"{len(found)} places with these lines{_nearest(old, lines)}",
            "an edit must fit the solution in one place; where several are alike, lines beside the "
            "one that is meant, each after a space, tell them apart",
        )
    return found[0], len(old), new


def _nearest(old: list[str], lines: list[str]) -> str:
    """For an edit's first line that is not in the solution: the line that was probably meant."""
    unknown = [line for line in old if line not in lines]
    near = get_close_matches(unknown[0], lines, 1) if unknown else []
    return f"; for {unknown[0]!r} there is {near[0]!r}" if near else ""
