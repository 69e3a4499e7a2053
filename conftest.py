"""For every run of pytest, `--nbval` included: what a kernel under test inherits."""

from __future__ import annotations

import os
import signal
import tempfile
from pathlib import Path

import pytest

from course_lib.grade.author.build import untouched_course

HERE = Path(__file__).parent

# A shell starts what runs in the background deaf to Ctrl-C, and so would be all that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Cells that take long show their output once, at the end, so that it can be compared.
os.environ["COURSE_LIVE"] = "0"


def pytest_configure(config: pytest.Config) -> None:
    """Notebooks under test grade fresh starters: a reader's answers and progress stay unread."""
    if not (config.getoption("nbval", False) or config.getoption("nbval_lax", False)):
        return
    config.option.nbval_sanitize_with = config.option.nbval_sanitize_with or str(
        HERE / "tests" / "nbval_sanitize.cfg"
    )
    os.environ["COURSE_RECORDED"] = "1"  # a busy machine changes no order of times
    if "COURSE_ROOT" not in os.environ:
        folder = tempfile.TemporaryDirectory(prefix="course-untouched-")
        config.add_cleanup(folder.cleanup)
        os.environ["COURSE_ROOT"] = str(untouched_course(HERE, Path(folder.name)))


@pytest.fixture(scope="session")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The course as nobody has worked on it: for tests that look at exercises."""
    return untouched_course(HERE, tmp_path_factory.mktemp("untouched"))
