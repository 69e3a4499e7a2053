"""Starters from solutions: what lies between two marks is cut out, and an error stands there.

Notebook: none; `course dev build` runs it.
Source: nbgrader's `### BEGIN SOLUTION` marks.
Costs nothing.
The production version also strips the instructor's notes.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from course_lib.grade.card import write_atomically
from course_lib.grade.catalog import Entry
from course_lib.grade.mutate import EQUIVALENT

BEGIN, END = "# BEGIN SOLUTION", "# END SOLUTION"
GIVEN = "#:"
BLOCK = re.compile(rf"^(?P<indent>[ \t]*){BEGIN}[^\n]*\n.*?^[ \t]*{END}[^\n]*\n", re.M | re.S)


class BuildError(ValueError):
    """A solution that no starter can be made of."""


class NoSolutions(LookupError):
    """A student's copy of the course: what was asked needs solutions, and it has none."""


def starter(entry: Entry) -> str:
    """The starter's text, made of the solution.

    Every block becomes a `NotImplementedError` that names the exercise, and, where a block has text
    after its mark (`# BEGIN SOLUTION: the second pass`), that text. A block whose lines in part
    begin with `#:` becomes those lines instead: code with a fault, for the reader to repair. Marks
    for `course dev mutate` go: they would tell a reader nothing.

    Raises:
        BuildError: the solution has no block, or one that does not end.
    """
    text = entry.solution.read_text(encoding="utf-8")
    found = BLOCK.findall(text)
    if not found or len(found) != text.count(BEGIN) or len(found) != text.count(END):
        raise BuildError(f"{entry.solution.name} needs pairs of {BEGIN!r} and {END!r}")

    def replace(match: re.Match[str]) -> str:
        first, *lines = match.group(0).splitlines()
        given = [line for line in lines if line.lstrip().startswith(GIVEN)]
        if given:
            return "".join(re.sub(rf"{GIVEN} ?", "", line, count=1) + "\n" for line in given)
        note = first.partition(BEGIN)[2].strip(" :") or "write your answer here"
        return f'{match["indent"]}raise NotImplementedError("{entry.name}: {note}")\n'

    return re.sub(rf" *{re.escape(EQUIVALENT)}$", "", BLOCK.sub(replace, text), flags=re.M)


def is_given(entry: Entry) -> bool:
    """Whether the starter is code to repair: it runs and is wrong, where others are not written."""
    return "raise NotImplementedError(" not in starter(entry)


def build(entry: Entry, *, force: bool = False) -> str:
    """Writes the starter to the learner's place.

    Args:
        entry: the exercise.
        force: overwrite a file that is neither missing nor the starter.

    Returns:
        `written`, `unchanged`, or `kept` for a file that somebody has worked on.
    """
    text = starter(entry)
    if entry.path.exists():
        there = entry.path.read_text(encoding="utf-8")
        if there == text:
            return "unchanged"
        if not force:
            return "kept"
    write_atomically(entry.path, text)
    return "written"


def back_up(entry: Entry) -> Path | None:
    """Copies the learner's file to `.course/backup`, under the next free number."""
    if not entry.path.exists():
        return None
    folder = entry.root / ".course" / "backup" / entry.exercise.lesson
    folder.mkdir(parents=True, exist_ok=True)
    taken = [path.name.split(".")[-2] for path in folder.glob(f"{entry.name}.*.py")]
    number = 1 + max((int(text) for text in taken if text.isdecimal()), default=0)
    copy = folder / f"{entry.name}.{number}.py"
    shutil.copyfile(entry.path, copy)
    return copy


def save_answer(entry: Entry, text: str) -> Path | None:
    """Writes the learner's file; returns the backup of what was there, if that was another text."""
    data, old = text.encode("utf-8"), None
    if entry.path.exists() and entry.path.read_bytes() != data:
        old = back_up(entry)
    write_atomically(entry.path, text)
    return old
