"""What a recording costs: a digest beside SHA-256's, and a training step with and without it.

Steps are those of the training command on dp 4, the median over the run of the slowest rank's
time; runs with and without a recording take turns. `size` of a step is the bytes that one rank
digests in it: of each call what it reads and what it gives.
"""

from __future__ import annotations

import hashlib
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from math import prod
from pathlib import Path

import torch

from benchmarks.row import Row
from course_lib.comm import Group
from course_lib.ranks import ForkServer, run_on_ranks
from course_lib.replay import digest, read_recording
from course_lib.train import RunConfig, train
from course_lib.train.command.folder import recording_folder

SIZES = (4 << 10, 1 << 20, 16 << 20)
ROUNDS, TURNS = 20, 4
RUN = RunConfig(dp=4, batch=32, steps=12, corpus_mib=1)


def best(work: Callable[[], object]) -> float:
    """Milliseconds of the fastest of some calls: the others met something else."""
    took = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        work()
        took.append(time.perf_counter() - begin)
    return min(took) * 1e3


def step_seconds(group: Group, config: RunConfig) -> list[float]:
    """The seconds of each step but the first two, which also warm up."""
    return [row["seconds"] for row in train(config, group, bar=False)[2:]]


def digested(folder: Path) -> int:
    """Bytes that rank 0's recorder looked at in a step: what calls read, and what they gave."""
    log = read_recording(recording_folder(folder, 0)).ranks[0]
    steps = len(log.steps)
    sizes = [prod(call.shape) * getattr(torch, call.dtype).itemsize for call in log.calls]
    return 2 * sum(sizes) // steps


def rows() -> Iterator[Row]:
    """Digests by size, then a step."""
    torch.set_num_threads(1)
    for size in SIZES:
        values = torch.randn(size // 8, dtype=torch.float64)
        raw = values.view(torch.uint8).numpy().data
        ours = best(partial(digest, values))
        theirs = best(partial(hashlib.sha256, raw))
        yield Row("recording", "digest", 1, size, ours, theirs, "SHA-256", "ms")
    times: dict[bool, list[float]] = {True: [], False: []}
    with ForkServer() as server, tempfile.TemporaryDirectory() as folder:
        for _ in range(TURNS):
            for recorded in times:
                config = replace(RUN, record=recorded, folder=folder if recorded else "")
                each = run_on_ranks(step_seconds, RUN.world, config, server=server)
                times[recorded] += [max(step) for step in zip(*each, strict=True)]
        count = digested(Path(folder))
    ours, theirs = (statistics.median(times[recorded]) * 1e3 for recorded in (True, False))
    yield Row("recording", "step", RUN.world, count, ours, theirs, "not recorded", "ms")
