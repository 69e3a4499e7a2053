"""For every run of pytest, `--nbval` included: what a kernel under test inherits."""

import os
import signal

import pytest

# A shell starts what runs in the background deaf to Ctrl-C, and so would be all that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Cells that take long show their output once, at the end, so that it can be compared.
os.environ["COURSE_LIVE"] = "0"

# Tests that share nothing but the preloaded process: side by side, any worker may take any of them.
SEPARATE = {"test_zoo.py"}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With `-n`, a file stays on one worker: cells of a notebook and fixtures of a module do."""
    for item in items:
        if item.path.name not in SEPARATE:
            item.add_marker(pytest.mark.xdist_group(str(item.path)))
