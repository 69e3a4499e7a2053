"""Which exercises there are, and where their files lie."""

from __future__ import annotations

import ast
import difflib
import os
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from course_lib.grade.checks import Check, Exercise
from course_lib.trace import Refusal

PACKAGE = Path(__file__).resolve().parents[1]


class SuiteError(ValueError):
    """A suite whose EXERCISE or checks cannot be read."""


@dataclass(frozen=True)
class Entry:
    """One exercise of the course.

    Attributes:
        exercise: what its suite says about it.
        checks: its checks, in order.
        suite: the suite's path.
        root: the course's folder, with `exercises` in it.
    """

    exercise: Exercise
    checks: tuple[Check, ...]
    suite: Path
    root: Path

    @property
    def name(self) -> str:
        """The exercise's name, which all of its files have."""
        return self.suite.stem

    @property
    def lesson(self) -> str:
        """The folder that all of its files lie in: `01_collectives`."""
        return self.suite.parent.name

    @property
    def points(self) -> int:
        """All points there are."""
        return sum(check.points for check in self.checks)

    @property
    def defines(self) -> tuple[str, ...]:
        """Names that the learner's file must define."""
        return self.exercise.defines or (self.name,)

    @property
    def place(self) -> str:
        """The learner's file, as seen from `exercises`."""
        return f"{self.lesson}/{self.name}.py"

    @property
    def path(self) -> Path:
        """The learner's file."""
        return self.root / "exercises" / self.place

    @property
    def solution(self) -> Path:
        """The solution; a student's copy of the course may not have it."""
        return self.root / "solutions" / self.place

    @property
    def starter(self) -> Path:
        """The starter in a student's copy, which has no solution to make it of."""
        return self.root / "exercises" / ".starters" / self.place

    @property
    def mutants(self) -> Path:
        """The file of wrong answers and of other right ones."""
        return self.root / "grading" / "mutants" / self.place


def checkout(start: Path | None = None) -> Path | None:
    """The course's folder: the nearest one above `start` with exercises in it.

    Where there is none, the one that this package lies in; None if that holds installed packages,
    where nothing of the course is to be looked for, or written. Without `start`, COURSE_ROOT in the
    environment says another, as tests of notebooks do.
    """
    if start is None and os.environ.get("COURSE_ROOT"):
        return Path(os.environ["COURSE_ROOT"])
    start = (start or Path.cwd()).resolve()
    for folder in (start, *start.parents):
        if any((folder / "exercises").glob("[0-9][0-9]_*")):
            return folder
    return PACKAGE.parent if (PACKAGE.parent / "pyproject.toml").exists() else None


def find_root(start: Path | None = None) -> Path:
    """The course's folder, as `checkout` finds it.

    Raises:
        Refusal: the package is installed by itself, and `start` is in no course.
    """
    found = checkout(start)
    if found is None:
        address = metadata.metadata("course-lib")["Project-URL"].rpartition(", ")[2]
        raise Refusal(
            f"exercises, or the progress in them, in {start or Path.cwd()}",
            "no exercises/ here or above, and course_lib is installed by itself",
            f"only the whole course has them: git clone {address}, then `make lab`",
        )
    return found


def entries(root: Path | None = None) -> list[Entry]:
    """All exercises, in the order of the lessons, and within one in the order of the notebook.

    Raises:
        SuiteError: a suite cannot be read.
    """
    root = root or find_root()
    found = [read_suite(path, root) for path in suites(root)]
    return sorted(found, key=lambda e: (e.lesson, e.exercise.order, e.name))


def find(name: str, root: Path | None = None) -> Entry:
    """One exercise by its name; `lesson/name` and a path to its file are understood as well.

    Raises:
        Refusal: there is none of that name.
    """
    short = name.replace("\\", "/").rpartition("/")[2].removesuffix(".py")
    root = root or find_root()
    known = {path.stem: path for path in suites(root)}
    if short in known:
        return read_suite(known[short], root)
    near = difflib.get_close_matches(short, known, n=2, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else "`course list` shows them all"
    raise Refusal(f"the exercise {name!r}", "no exercise of that name", hint)


def chosen(name: str | None, root: Path | None = None) -> list[Entry]:
    """One exercise, or all of them if no name is given.

    Raises:
        Refusal: there is none of that name.
    """
    return [find(name, root)] if name else entries(root)


def suites(root: Path) -> list[Path]:
    """The suites of a course, one for each exercise.

    Raises:
        Refusal: there are none: the folder is no whole course.
    """
    found = sorted((root / "grading" / "suites").glob("*/*.py"))
    if not found:
        raise Refusal(
            f"the exercises of the course in {root}",
            "no suite in grading/suites, which says what each exercise is and checks it",
            "copy grading/ as well, or work in the whole course",
        )
    return found


# --- reading a suite without running it ----------------------------------------------------------
def read_suite(path: Path, root: Path) -> Entry:
    """What a suite says about its exercise and its checks.

    Raises:
        SuiteError: it is not written with literals, or says nothing.
    """
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        exercise = Exercise(**_exercise_fields(tree))
        checks = tuple(check for node in tree.body for check in check_of(node))
    except (SyntaxError, ValueError, TypeError, LookupError) as error:
        raise SuiteError(f"cannot read the suite {path}: {error}") from None
    if not checks:
        raise SuiteError(f"the suite {path} has no checks")
    return Entry(exercise, checks, path, root)


def _exercise_fields(tree: ast.Module) -> dict[str, Any]:
    for node in tree.body:
        if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)):
            continue
        if [ast.unparse(target) for target in node.targets] == ["EXERCISE"]:
            return {str(word.arg): ast.literal_eval(word.value) for word in node.value.keywords}
    raise LookupError("it has no EXERCISE = Exercise(...)")


def check_of(node: ast.stmt) -> list[Check]:
    """The check that a statement defines, if it does."""
    if not isinstance(node, ast.FunctionDef):
        return []
    calls = [mark for mark in node.decorator_list if isinstance(mark, ast.Call)]
    marks = {ast.unparse(call.func): call for call in calls}
    if "check" not in marks:
        return []
    words = {str(word.arg): ast.literal_eval(word.value) for word in marks["check"].keywords}
    if "diagnosis" in marks:
        words["diagnosis"] = ast.literal_eval(marks["diagnosis"].args[0])
    return [Check(node.name, ast.literal_eval(marks["check"].args[0]), **words)]
