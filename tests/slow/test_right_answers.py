"""Students get seeds, so every right answer is right under every one: all of them under ten.

Ninety minutes on two cores. `course dev zoo --right --seeds 0-9 --jobs 2` is the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from course_lib.grade.author import zoo
from course_lib.grade.catalog import PACKAGE, Entry, entries
from course_lib.grade.grader import Grader

pytestmark = pytest.mark.slow
SEEDS = range(10)
JOBS = 2


@pytest.fixture(scope="module")
def graders() -> Iterator[list[Grader]]:
    with ExitStack() as stack:
        yield [stack.enter_context(Grader()) for _ in range(JOBS)]


@pytest.mark.parametrize("entry", entries(PACKAGE.parent), ids=lambda entry: entry.name)
def test_right_under_every_seed(entry: Entry, graders: list[Grader], tmp_path: Path) -> None:
    known = zoo.right_answers(zoo.answers_of(entry))
    found = list(zoo.verdicts(known, SEEDS, graders, tmp_path))
    assert len(found) == len(known) * len(SEEDS) > 0
    assert [f"{v.answer.name}, seed {v.seed}: {v.complaint}" for v in found if v.complaint] == []
