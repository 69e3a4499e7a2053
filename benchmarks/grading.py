"""Grading `ring_all_reduce`, from a saved file to its score card, in seconds.

Ours is the whole exercise: 9 runs on 1 to 4 ranks, 12 points. `grade_s` is `%grade` and `course
watch`, where the preloaded process is up; `grade_cold_s` is `course grade` from the shell, and
`class_s` a hand-in's share of `course class`, over students who have handed in the exercise's right
and wrong answers in turn. The peer is how courses do it today: pytest over one test that starts 4
ranks with torch's mp.spawn, once.
"""

from __future__ import annotations

import csv
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks.row import Row
from course_lib.grade.author import zoo
from course_lib.grade.catalog import PACKAGE, find
from course_lib.grade.grader import Grader

WARM, COLD, PEER = 20, 4, 3
STUDENTS = 200
COURSE = (sys.executable, "-m", "course_lib.grade.cli")
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
    command = [*COURSE, "grade", entry.name, "--file", str(entry.solution)]
    return seconds(lambda: _quietly(command, PACKAGE.parent), COLD)


def of_a_class() -> Row:
    """A class's marks, of which exactly the right answers' must be full."""
    entry = find("ring_all_reduce", PACKAGE.parent)
    right = {}
    with tempfile.TemporaryDirectory() as folder:
        handed_in = Path(folder) / "class"
        answers = zoo.answers_of(entry)
        for number, answer in zip(range(STUDENTS), itertools.cycle(answers), strict=False):
            path = handed_in / f"student{number}" / "exercises" / entry.place
            path.parent.mkdir(parents=True)
            path.write_text(answer.source, encoding="utf-8")
            right[f"student{number}"] = answer.kind in zoo.RIGHT
        command = [*COURSE, "class", str(handed_in), "--exercises", entry.name]
        [took] = seconds(lambda: _quietly(command, PACKAGE.parent, codes=(0, 1, 5)), 1)
        with (Path(folder) / "class.grades" / "marks.csv").open(encoding="utf-8") as file:
            full = {row["student"]: row["score"] == row["points"] for row in csv.DictReader(file)}
    wrong = sum(right[student] != full[student] for student in right)
    note = f"{len(full)} hand-ins, {wrong} with marks that are not due"
    return Row("grading", "class_s", 4, 0, took / STUDENTS, None, "", "s", note)


def peer() -> list[float]:
    """One pytest run that spawns four ranks."""
    entry = find("ring_all_reduce", PACKAGE.parent)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "test_ring.py").write_text(PEER_TEST)
        (Path(folder) / "solution.py").write_text(entry.solution.read_text(encoding="utf-8"))
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", folder]
        return seconds(lambda: _quietly(command, Path(folder)), PEER)


def _quietly(command: list[str], folder: Path, codes: Sequence[int] = (0,)) -> None:
    """Runs a command in a folder that it can import from; its output is thrown away.

    Raises:
        subprocess.CalledProcessError: it ended with another code than these.
    """
    environment = {**os.environ, "PYTHONPATH": f"{PACKAGE.parent}{os.pathsep}{folder}",
                   "OMP_NUM_THREADS": "1"}  # fmt: skip
    ended = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL)
    if ended.returncode not in codes:
        ended.check_returncode()


def rows() -> Iterator[Row]:
    """Warm and cold, the middle and the slow end."""
    theirs = peer()
    for what, times in (("grade_s", warm()), ("grade_cold_s", cold())):
        slow = sorted(times)[min(len(times) - 1, round(0.95 * len(times)))]
        note = f"{len(times)} gradings"
        yield Row("grading", f"{what}_p50", 4, 0, statistics.median(times),
                  statistics.median(theirs), PEER_NAME, "s", note)  # fmt: skip
        yield Row("grading", f"{what}_p95", 4, 0, slow, max(theirs), PEER_NAME, "s", note)
    yield of_a_class()
