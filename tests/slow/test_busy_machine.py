"""Whoever else uses the processors: the same answer has the same fault, or none."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from course_lib.grade.catalog import Entry, read_suite
from course_lib.grade.grader import Grader
from course_lib.grade.report import as_text
from course_lib.ranks import ForkServer

pytestmark = pytest.mark.slow

SUITE = Path(__file__).parents[1] / "grade" / "suites" / "99_test" / "double.py"
BODIES = {
    "while True:\n        pass": "infinite loop",
    "while group.index:\n        pass\n    torch.distributed.barrier()": "rank 1 has used",
    "keep = []\n    while True:\n        keep.append(bytearray(1 << 22)); sum(range(10**6))":
        "out of memory",
    "torch.distributed.barrier() if group.index else None\n    return 2 * tensor": "deadlock",
    "time.sleep(99)": "gave no answer in 6 s",
    "for _ in range(300):\n        torch.distributed.barrier()\n    return 2 * tensor":
        "✓ 1. 2/2 twice the value",
    "1 / 0": "every rank: ZeroDivisionError",
    "end = time.process_time() + 1.5\n    while time.process_time() < end:\n        pass\n"
    "    return 2 * tensor": "All checks passed",
}  # fmt: skip


@pytest.fixture(scope="module")
def crowded() -> Iterator[Grader]:
    """A grader whose processes share one processor with three others that never rest."""
    if not hasattr(os, "sched_setaffinity"):
        pytest.skip("this system cannot keep processes on one processor")
    one = {min(os.sched_getaffinity(0))}
    with ExitStack() as stack:
        server = stack.enter_context(ForkServer())
        server.wait_ready(120)
        os.sched_setaffinity(server.pid, one)
        for _ in range(3):
            loop = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            stack.callback(loop.wait)
            stack.callback(loop.kill)
            os.sched_setaffinity(loop.pid, one)
        yield Grader(lambda: server)


@pytest.fixture
def double(tmp_path: Path) -> Entry:
    suite = tmp_path / "grading" / "suites" / "99_test" / "double.py"
    suite.parent.mkdir(parents=True)
    shutil.copyfile(SUITE, suite)
    return read_suite(suite, tmp_path)


@pytest.mark.parametrize("body", BODIES, ids=BODIES.values())
def test_the_fault_has_its_name(body: str, crowded: Grader, double: Entry) -> None:
    double.path.parent.mkdir(parents=True)
    double.path.write_text(
        f"import time\nimport torch\n\n\ndef double(tensor, group):\n    {body}\n"
    )
    shown = as_text(crowded.grade(double))
    assert BODIES[body] in " ".join(shown.split()), shown
