"""Grading `ring_all_reduce`, from a saved file to its score card, in seconds.

Ours is the whole exercise: 9 runs on 1 to 4 ranks, 12 points. `grade_s` is `%grade` and `course
watch`, where the preloaded process is up; `grade_cold_s` is `course grade` from the shell. The peer
is how courses do it today: pytest over one test that starts 4 ranks with torch's mp.spawn, once.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.row import Row
from course_lib.grade.catalog import PACKAGE, find
from course_lib.grade.grader import Grader

WARM, COLD, PEER = 20, 4, 3
PEER_NAME = "pytest + mp.spawn, 1 test"
PEER_TEST = """
import torch, torch.distributed as dist, torch.multiprocessing as mp
from course_lib.comm import Group
from solution import ring_all_reduce

def work(rank, file):
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=4)
    tensor = torch.full((499,), float(rank), dtype=torch.float64)
    ring_all_reduce(tensor, Group.world())
    assert torch.equal(tensor, torch.full_like(tensor, 6.0))

def test_ring(tmp_path):
    mp.spawn(work, (str(tmp_path / "meet"),), nprocs=4)
"""


def seconds(call: Callable[[], object], count: int) -> list[float]:
    """Seconds of each of `count` calls."""
    times = []
    for _ in range(count):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return times


def warm() -> list[float]:
    """Gradings on a preloaded process; the first one is not counted."""
    entry = find("ring_all_reduce", PACKAGE.parent)
    with Grader() as grader:
        grader.grade(entry, entry.solution)
        return seconds(lambda: grader.grade(entry, entry.solution), WARM)


def cold() -> list[float]:
    """The command, from the shell."""
    entry = find("ring_all_reduce", PACKAGE.parent)
    command = [sys.executable, "-m", "course_lib.grade.cli", "grade", entry.name,
               "--file", str(entry.solution)]  # fmt: skip
    return seconds(lambda: _quietly(command, PACKAGE.parent), COLD)


def peer() -> list[float]:
    """One pytest run that spawns four ranks."""
    entry = find("ring_all_reduce", PACKAGE.parent)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "test_ring.py").write_text(PEER_TEST)
        (Path(folder) / "solution.py").write_text(entry.solution.read_text(encoding="utf-8"))
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", folder]
        return seconds(lambda: _quietly(command, Path(folder)), PEER)


def _quietly(command: list[str], folder: Path) -> None:
    """Runs a command in a folder that it can import from; its output is thrown away."""
    environment = {**os.environ, "PYTHONPATH": f"{PACKAGE.parent}{os.pathsep}{folder}",
                   "OMP_NUM_THREADS": "1"}  # fmt: skip
    subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)


def rows() -> Iterator[Row]:
    """Warm and cold, the middle and the slow end."""
    theirs = peer()
    for what, times in (("grade_s", warm()), ("grade_cold_s", cold())):
        slow = sorted(times)[min(len(times) - 1, round(0.95 * len(times)))]
        note = f"{len(times)} gradings"
        yield Row("grading", f"{what}_p50", 4, 0, statistics.median(times),
                  statistics.median(theirs), PEER_NAME, "s", note)  # fmt: skip
        yield Row("grading", f"{what}_p95", 4, 0, slow, max(theirs), PEER_NAME, "s", note)
