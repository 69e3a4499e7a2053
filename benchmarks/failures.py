"""The same random failures survived three ways: restart from disk, peer memory, quorum.

Eight real ranks whose step takes 50 ms; kills, freezes and cuts come as a Poisson process, one
every six seconds on average, and a rank is away for one. Starting a job again takes a second, and
a checkpoint is made every ten steps (disk) or five (memory). `ours` is the share of the paid time
that is lost, 1 - goodput, by the quorum; `peer` the same by the other way. The note has goodput,
failures and the batches that were made again. Each run's record is checked: every batch counted
once, and all ranks' weights are those of one process on the batches that counted.
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
from course_lib.failures import (
    Limits,
    Plan,
    Record,
    goodput,
    one_process,
    random_faults,
    survive,
)
from course_lib.ranks import ForkServer

RANKS, BATCHES, STEP, SIZE = 8, 8 * 400, 0.05, 20_000
EVERY, AWAY, SEEDS = 6.0, 1.0, (0, 1, 2)
LIMITS = Limits(silent=0.4, stuck=20.0)


class Waits:
    """A model that fits numbers; a batch takes a fixed time, as on an accelerator."""

    def __init__(self, step: float = STEP) -> None:
        self.step = step
        self.values = torch.zeros(SIZE, dtype=torch.float64)
        self.momentum = torch.zeros_like(self.values)

    def weights(self) -> torch.Tensor:
        """All of them."""
        return self.values

    def gradient(self, batch: int) -> tuple[float, torch.Tensor]:
        """Of a batch."""
        time.sleep(self.step)
        made = torch.Generator().manual_seed(batch)
        gap = self.values - torch.randn(SIZE, generator=made, dtype=torch.float64)
        return gap.square().mean().item(), gap

    def apply(self, mean: torch.Tensor) -> None:
        """A step with momentum."""
        self.momentum.mul_(0.9).add_(mean)
        self.values.sub_(self.momentum, alpha=0.01)

    def state(self) -> Any:
        """Everything."""
        return [self.values, self.momentum]

    def load(self, state: Any) -> None:
        """Goes on from there."""
        self.values, self.momentum = state


def checked(record: Record) -> Record:
    """The record, if no step in it is wrong."""
    assert sorted(record.batches) == list(range(BATCHES))
    exact = one_process(lambda: Waits(0.0), record.counted)
    for state in record.states.values():
        assert all(a.equal(b) for a, b in zip(state, exact.state(), strict=True))
    return record


def rows() -> Iterator[Row]:
    """A row for each seed and each of the other ways."""
    with ForkServer() as server, tempfile.TemporaryDirectory() as folder:
        kept = Path(folder) / "kept"
        ways = {
            "quorum": Plan(),
            "memory": Plan("memory", every=5),
            "disk": Plan("disk", every=10, startup=1.0, kept=kept),
        }
        calm = survive(Waits, RANKS, 8 * 60, (), LIMITS, server=server)
        second = statistics.median(step.end - step.begin for step in calm.counted)
        for seed in SEEDS:
            faults = random_faults(RANKS, EVERY, 3600.0, AWAY, seed)
            found = {}
            for name, plan in ways.items():
                kept.unlink(missing_ok=True)
                record = checked(survive(Waits, RANKS, BATCHES, faults, LIMITS, plan, server))
                found[name] = goodput(record.spans(second), RANKS), record
            for name in ("disk", "memory"):
                (ours, quorum), (theirs, other) = found["quorum"], found[name]
                note = (
                    f"goodput {ours:.3f} and {theirs:.3f}; {struck(quorum)} and {struck(other)} "
                    f"failures; {quorum.lost} and {other.lost} batches made again"
                )
                yield Row("failures", f"time lost, seed {seed}", RANKS, SIZE * 8, 1 - ours,
                          1 - theirs, f"restart from {name}", "share", note)  # fmt: skip


def struck(record: Record) -> int:
    """How many failures there were."""
    return sum(happened.what in ("kill", "freeze", "cut") for happened in record.happenings)
