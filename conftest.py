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


KERNELS = pytest.StashKey[dict[str, str]]()  # what notebooks' kernels have in their environment


def pytest_configure(config: pytest.Config) -> None:
    """Notebooks under test grade fresh starters: a reader's answers and progress stay unread."""
    if not config.getoption("nbval", False):
        return
    if "COURSE_ROOT" not in os.environ:  # else it was set by the process that has started this one
        folder = tempfile.TemporaryDirectory(prefix="course-untouched-")
        config.add_cleanup(folder.cleanup)
        os.environ["COURSE_ROOT"] = str(untouched_course(HERE, Path(folder.name)))
    # A busy machine changes no order of times that is recorded.
    config.stash[KERNELS] = {"COURSE_ROOT": os.environ["COURSE_ROOT"], "COURSE_RECORDED": "1"}


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """A notebook's first cell starts its kernel; tests in Python beside it have none of this."""
    for name, value in item.config.stash.get(KERNELS, {}).items():
        if item.path.suffix == ".ipynb":
            os.environ[name] = value
        else:
            os.environ.pop(name, None)


@pytest.fixture(scope="session")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The course as nobody has worked on it: for tests that look at exercises."""
    return untouched_course(HERE, tmp_path_factory.mktemp("untouched"))
