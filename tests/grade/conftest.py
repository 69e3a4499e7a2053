"""A grader on the shared preloaded process, and a small exercise to grade."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from course_lib.grade.catalog import Entry, read_suite
from course_lib.grade.grader import Grader
from course_lib.grade.report import Card
from course_lib.ranks import ForkServer

SUITES = Path(__file__).parent / "suites" / "99_test"
RIGHT = "def double(tensor, group):\n    return tensor + tensor\n"


@pytest.fixture(scope="session")
def grader(server: ForkServer) -> Grader:
    return Grader(lambda: server)


@pytest.fixture
def double(tmp_path: Path) -> Entry:
    """The exercise `double`, in a course folder of its own."""
    return _entry(tmp_path, "double", RIGHT)


@pytest.fixture
def shortest(tmp_path: Path) -> Entry:
    """The open exercise `shortest`, in a course folder of its own."""
    return _entry(tmp_path, "shortest", "def shortest(total):\n    return [1] * total\n")


@pytest.fixture(scope="session")
def judged(
    grader: Grader, server: ForkServer, tmp_path_factory: pytest.TempPathFactory
) -> ForkServer:
    """The preloaded process after a judge has been at work on it, as one has before any answer."""
    entry = _entry(tmp_path_factory.mktemp("judged"), "double", RIGHT)
    assert grader.grade(entry).status == "full"
    return server


def _entry(root: Path, name: str, text: str) -> Entry:
    suite = root / "grading" / "suites" / "99_test" / f"{name}.py"
    suite.parent.mkdir(parents=True)
    shutil.copyfile(SUITES / suite.name, suite)
    entry = read_suite(suite, root)
    entry.path.parent.mkdir(parents=True)
    entry.path.write_text(text)
    return entry


@pytest.fixture
def grade(
    grader: Grader, double: Entry, server: ForkServer, left_behind: Callable[[int], dict[int, str]]
) -> Iterator[Callable[[str], Card]]:
    """Grades a text as the answer to `double`; afterwards nothing may be left running."""

    def call(text: str) -> Card:
        double.path.write_text(text)
        return grader.grade(double)

    yield call
    assert left_behind(server.pid) == {}
