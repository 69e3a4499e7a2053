"""A check with `in_part` is repeated on a part of a larger world, its ranks not ascending."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from course_lib.grade.author.group_slips import group_slips
from course_lib.grade.catalog import Entry, read_suite
from course_lib.grade.grader import Grader
from course_lib.grade.report import as_text

RIGHT = """
from course_lib.comm import all_reduce

def own_rows(tensor, group):
    all_reduce(tensor, group)
    return tensor.tensor_split(group.size)[group.index]
"""


@pytest.fixture
def own_rows(tmp_path: Path) -> Entry:
    """The exercise `own_rows`, in a course folder of its own."""
    here = Path(__file__).parent / "suites" / "99_test" / "own_rows.py"
    suite = tmp_path / "grading" / "suites" / "99_test" / "own_rows.py"
    suite.parent.mkdir(parents=True)
    shutil.copyfile(here, suite)
    entry = read_suite(suite, tmp_path)
    entry.path.parent.mkdir(parents=True)
    return entry


def graded(entry: Entry, grader: Grader, text: str) -> tuple[str, int, str]:
    entry.path.write_text(text)
    card = grader.grade(entry)
    return card.status, card.score, " ".join(as_text(card).split())


def test_what_is_right_in_the_world_and_in_its_part_is_right(
    own_rows: Entry, grader: Grader
) -> None:
    assert graded(own_rows, grader, RIGHT)[:2] == ("full", 4)


@pytest.mark.parametrize("slip", ["rank_for_index", "world_size_for_size"])
def test_who_takes_the_world_for_the_group_is_told_so(
    own_rows: Entry, grader: Grader, slip: str
) -> None:
    status, score, text = graded(own_rows, grader, dict(group_slips(RIGHT))[slip])
    assert (status, "on the world this is right" in text) == ("failed", True), text
    assert "in the group of ranks 3, 2, 1" in text


def test_what_is_wrong_in_the_world_has_its_own_cause(own_rows: Entry, grader: Grader) -> None:
    _, _, text = graded(own_rows, grader, RIGHT.replace("all_reduce(tensor, group)", "pass"))
    assert "on the world this is right" not in text
