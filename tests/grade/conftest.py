"""A grader on the shared preloaded process, and a small exercise to grade."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from course_lib.grade.catalog import Entry, read_suite
from course_lib.grade.grader import Grader
from course_lib.grade.report import Card
from course_lib.ranks import ForkServer
from course_lib.ranks.system.descend import descendants

SUITE = Path(__file__).parent / "suites" / "99_test" / "double.py"
RIGHT = "def double(tensor, group):\n    return tensor + tensor\n"


@pytest.fixture(scope="session")
def grader(server: ForkServer) -> Grader:
    return Grader(lambda: server)


@pytest.fixture
def double(tmp_path: Path) -> Entry:
    """The exercise `double`, in a course folder of its own."""
    suite = tmp_path / "grading" / "suites" / "99_test" / "double.py"
    suite.parent.mkdir(parents=True)
    shutil.copyfile(SUITE, suite)
    entry = read_suite(suite, tmp_path)
    entry.path.parent.mkdir(parents=True)
    entry.path.write_text(RIGHT)
    return entry


@pytest.fixture
def grade(
    grader: Grader, double: Entry, server: ForkServer, spares_of: Callable[[int], list[int]]
) -> Iterator[Callable[[str], Card]]:
    """Grades a text as the answer to `double`; afterwards nothing may be left running."""

    def call(text: str) -> Card:
        double.path.write_text(text)
        return grader.grade(double)

    yield call
    patience = time.monotonic() + 30.0  # the server reaps what it has killed once a second
    while (left := _jobs(server.pid, spares_of)) and time.monotonic() < patience:
        time.sleep(0.05)
    assert left == set()


def _jobs(server: int, spares_of: Callable[[int], list[int]]) -> set[int]:
    """What runs under the preloaded process, but for those that wait for a job."""
    below = descendants(server)  # before the spares: one may get a job, but none gives it back
    return set(below) - set(spares_of(server))
