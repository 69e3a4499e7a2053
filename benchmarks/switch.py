"""A call over the grader's switch against the same call over gloo, float64, median of rank 0.

`all_reduce` is `comm.all_reduce`, `exchange` a message to the next rank and one from the previous.
The switch carries them as in a grading: a judge's trial, whose ranks run a driver of a suite made
for it. gloo carries them between ranks of the pool, and nobody watches them.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from benchmarks.row import Row
from course_lib.comm import Group, all_reduce, exchange
from course_lib.grade.judge.bench import Bench
from course_lib.grade.judge.terms import Limits, Subject
from course_lib.ranks import ForkServer, run_on_ranks

SIZES = {128: 300, 64 << 10: 300, 1 << 20: 60, 16 << 20: 10}  # bytes to how often it is called
WORLDS = (2, 4)
SUITE = """
from benchmarks.switch import call_times

def drive(learner, group, payload, times):
    return call_times(group, payload, times)
"""


def call_times(group: Group, payload: int, times: int) -> dict[str, float]:
    """Milliseconds of a call, by its name."""
    tensor = torch.ones(payload // 8, dtype=torch.float64)
    incoming = torch.empty_like(tensor)
    calls = {
        "all_reduce": lambda: all_reduce(tensor, group, "max"),
        "exchange": lambda: exchange(tensor, group.next, incoming, group.previous, group),
    }
    found = {}
    for name, call in calls.items():
        took = []
        for _ in range(times):
            begin = time.perf_counter()
            call()
            took.append(time.perf_counter() - begin)
        found[name] = statistics.median(took) * 1e3
    return found


def over_switch(server: ForkServer, world: int, payload: int, times: int) -> dict[str, float]:
    """The same, in a judge's trial."""
    torch.set_num_threads(1)  # as in the grader's process
    with tempfile.TemporaryDirectory() as folder:
        suite = Path(folder) / "suite.py"
        suite.write_text(SUITE)
        root = str(Path(__file__).resolve().parents[1])
        subject = Subject("calls", ("calls",), "calls.py", "calls = None\n", str(suite), root)
        inputs: list[dict[str, Any]] = [{"payload": payload, "times": times}] * world
        limits = Limits(cpu=100.0, wall=200.0)
        result = Bench(server, subject, 0, folder).result("drive", inputs, limits, None)
        if result.fault is not None:
            raise RuntimeError(result.fault.message)
        found: dict[str, float] = result.outputs[0]
        return found


def rows() -> Iterator[Row]:
    """Both calls for each size and world."""
    with ForkServer() as server:
        for world in WORLDS:
            for payload, times in SIZES.items():
                ours = over_switch(server, world, payload, times)
                theirs = run_on_ranks(call_times, world, payload, times, server=server)[0]
                for name, took in ours.items():
                    yield Row("switch", name, world, payload, took, theirs[name], "gloo", "ms")
