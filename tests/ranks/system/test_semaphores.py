"""Semaphores with names: a rank that was killed leaves none of them on the machine."""

from __future__ import annotations

import time

import pytest

from course_lib.ranks import Pool
from course_lib.ranks.system.processes import LINUX
from course_lib.ranks.system.semaphores import FOLDER

MAKE = """
import multiprocessing, os
context = multiprocessing.get_context("spawn")
queue, event = context.Queue(), context.Event()
print(os.getpid())
"""


def of(pid: int) -> list[str]:
    return [path.name for path in FOLDER.glob(f"sem.course-{pid}-*")]


@pytest.mark.skipif(not LINUX, reason="elsewhere nobody can list them")
def test_a_killed_rank_leaves_no_semaphores() -> None:
    with Pool(2) as pool:
        outcome = pool.run_cell(MAKE)
        pids = [int(bytes(outcome.output[rank])) for rank in (0, 1)]
        assert all(map(of, pids)), "each rank has some"
        pool.stop()
        deadline = time.monotonic() + 10
        while any(map(of, pids)) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not any(map(of, pids))
