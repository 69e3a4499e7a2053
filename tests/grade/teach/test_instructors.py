"""INSTRUCTORS.md: its commands are commands, its exercises and checks are there."""

from __future__ import annotations

import re
import shlex

import pytest

from course_lib.grade.catalog import PACKAGE, entries, find
from course_lib.grade.cli import _parser
from course_lib.grade.teach.commands import choose

TEXT = (PACKAGE.parent / "INSTRUCTORS.md").read_text()
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", TEXT, re.S)
BASH = "\n".join(code for language, code in BLOCKS if language == "bash").replace("\\\n", " ")
COMMANDS = re.findall(r"\.venv/bin/course (.*)", BASH)


def test_there_are_commands() -> None:
    assert len(COMMANDS) >= 6


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_is_understood(line: str) -> None:
    args = _parser().parse_args(shlex.split(line, comments=True))
    assert callable(args.do)
    assert choose(getattr(args, "exercises", None))


def test_checks_that_are_named_exist() -> None:
    rows = re.findall(r"^\| (\w+) \| (check_\w+) \|", TEXT, re.M)
    assert len(rows) >= 6
    for exercise, check in rows:
        assert check in [each.name for each in find(exercise).checks], (exercise, check)


@pytest.mark.slow
def test_the_weeks_name_exercises_and_fill_five_hours_at_most() -> None:
    weeks = re.findall(r"^\| \d+ \| .* \| `([\w,]+)` \|$", TEXT, re.M)
    assert len(weeks) == 10
    for week in weeks:
        minutes = sum(entry.exercise.minutes for entry in choose(week))
        assert 60 <= minutes <= 300, (week, minutes)
    known = {entry.lesson for entry in entries()}
    assert "16_capstone" in known


@pytest.mark.parametrize("code", [code for language, code in BLOCKS if language == "python"])
def test_snippets_are_python(code: str) -> None:
    compile(code.removeprefix("%%writefile hello_mesh.py\n"), "INSTRUCTORS.md", "exec")


def test_the_points_it_names_are_right() -> None:
    half = int(re.findall(r'"points": (\d+),$', TEXT, re.M)[0])
    assert half == find("hello_mesh").points
