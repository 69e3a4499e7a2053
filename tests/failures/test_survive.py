"""Real processes that are killed, frozen and cut off: each step is that of one process."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psutil
import pytest
import torch

from course_lib.failures import (
    Fault,
    Job,
    Limits,
    Plan,
    Record,
    goodput,
    one_process,
    random_faults,
    survive,
)
from course_lib.failures.coordinator import Coordinator
from course_lib.failures.room import Room, Seat
from course_lib.ranks import ForkServer
from course_lib.trace import Refusal
from tests.tiers import sampled

LIMITS = Limits(silent=1.0, stuck=30.0)
MANY = int(os.environ.get("COURSE_FAILURES", "0"))


class Small:
    """A model whose step depends on momentum and on random numbers of the whole job."""

    def __init__(self) -> None:
        start = torch.Generator().manual_seed(0)
        self.values = torch.randn(1001, generator=start, dtype=torch.float64)
        self.momentum = torch.zeros_like(self.values)
        self.noise = torch.Generator().manual_seed(5)
        self.steps = 0

    def weights(self) -> torch.Tensor:
        return self.values

    def gradient(self, batch: int) -> tuple[float, torch.Tensor]:
        made = torch.Generator().manual_seed(1000 + batch)
        x = torch.randn(1001, generator=made, dtype=torch.float64)
        gap = self.values * x - x
        return float(gap.square().mean()), 2 * gap * x

    def apply(self, mean: torch.Tensor) -> None:
        self.momentum.mul_(0.9).add_(mean)
        noise = torch.randn(1001, generator=self.noise, dtype=torch.float64)
        self.values.sub_(self.momentum, alpha=1e-3).add_(noise, alpha=1e-4)
        self.steps += 1

    def state(self) -> Any:
        return {
            "values": self.values,
            "momentum": self.momentum,
            "noise": self.noise.get_state(),
            "steps": self.steps,
        }

    def load(self, state: Any) -> None:
        self.values, self.momentum = state["values"], state["momentum"]
        self.steps = state["steps"]
        self.noise.set_state(state["noise"])


class Slow(Small):
    """Takes as long for a batch as there is time for failures; the weights are those of `Small`."""

    pause = 0.01

    def gradient(self, batch: int) -> tuple[float, torch.Tensor]:
        import time

        time.sleep(self.pause)
        return super().gradient(batch)


class Slower(Slow):
    """For long runs: the machine has less to do."""

    pause = 0.1


def check(record: Record, server: ForkServer, batches: int) -> None:
    """Every batch once, every rank that is whole equal to one process, and nothing left."""
    assert sorted(record.batches) == list(range(batches))
    exact: Job = one_process(Small, record.counted)
    right = exact.state()
    assert record.states
    for state in record.states.values():
        assert state["steps"] == len(record.counted) == right["steps"]
        for name in ("values", "momentum", "noise"):
            assert state[name].equal(right[name]), name
    assert not [c for c in psutil.Process(server.pid).children() if os.getsid(c.pid) == c.pid]


def test_killed_frozen_and_cut_off_at_once(server: ForkServer) -> None:
    faults = [Fault(0.1, "kill", 0, 0.1), Fault(0.2, "freeze", 1, 1.5), Fault(0.2, "cut", 3, 1.5)]
    record = survive(Slow, 6, 1200, faults, LIMITS, server=server)
    check(record, server, 1200)
    seen = {(happened.rank, happened.what) for happened in record.happenings}
    assert {(rank, what) for rank in (0, 1, 3) for what in ("out", "over", "heals")} <= seen
    assert {spell[3] for spell in record.spells()} >= {"kill", "freeze", "cut", "works", "heals"}
    assert 0 < goodput(record.spans(0.01), 6) < 1


@pytest.mark.parametrize("way", sampled(["memory", "disk"], 2))
def test_all_go_back_to_a_checkpoint(server: ForkServer, tmp_path: Path, way: str) -> None:
    plan = Plan(way, every=7, startup=0.1, kept=tmp_path / "kept" if way == "disk" else None)
    faults = [Fault(0.05, "kill", 2, 0.1), Fault(0.8, "kill", 0, 0.1)]
    record = survive(Slow, 3, 240, faults, LIMITS, plan, server)
    check(record, server, 240)
    assert 80 <= len(record.counted) <= 90, "they wait until all ranks are there"
    assert sum(happened.what == "kill" for happened in record.happenings) == 2


def test_one_rank_is_enough_and_thirteen_are_too_many(server: ForkServer) -> None:
    check(survive(Slow, 1, 5, server=server), server, 5)
    with pytest.raises(Refusal, match="1 to 12 ranks"):
        survive(Slow, 13, 1, server=server)


def test_the_last_weights_are_not_taken() -> None:
    """The others' processes are new: they have not begun, or have no weights yet."""
    seats, struck = [Seat(rank) for rank in range(3)], list[Fault]()
    room = SimpleNamespace(seats=seats, strike=lambda fault, now: struck.append(fault))
    job = Coordinator(cast(Room, room), 9, [Fault(0.0, "kill", 0, 1.0)], LIMITS, Plan())
    job.present = {0, 1, 2}
    seats[0].ready, seats[0].step = True, 5
    seats[1].ready = True
    job.strike()
    assert not struck
    seats[1].step = 5
    job.strike()
    assert [fault.rank for fault in struck] == [0]


def test_who_is_killed_has_ended_before_anything_is_decided(server: ForkServer) -> None:
    """Although the process that sends the signal comes late."""
    with Room(Slow, 1, server, 0.1, None) as room:
        room.start(room.seats[0])
        victim = room.seats[0].child
        assert victim is not None
        os.kill(server.pid, signal.SIGSTOP)
        threading.Timer(0.5, os.kill, (server.pid, signal.SIGCONT)).start()
        room.strike(Fault(0.0, "kill", 0, 1.0), 0.0)
        assert victim.status == -signal.SIGKILL


def test_a_new_process_gets_new_connections_and_a_state() -> None:
    """Also if the same ranks as before take the next step: there was no quorum in between.

    Otherwise it would count as whole, with the weights that it was made with.
    """
    room = SimpleNamespace(seats=[Seat(rank) for rank in range(3)])
    job = Coordinator(cast(Room, room), 9, [], LIMITS, Plan())
    for linked, after in (((0, 2), (0, 2)), ((0, 1, 2), ())):
        job.linked, job.sources = linked, {1: 0, 2: 0}
        job.take(room.seats[1], {"say": "hello"})
        assert (job.linked, job.sources) == (after, {2: 0})


@pytest.mark.skipif(not MANY, reason="set COURSE_FAILURES to a number of failures, such as 500")
def test_many_random_failures_in_one_run(server: ForkServer) -> None:
    """With so many failures ten batches of 100 ms take longer than it is to the next one."""
    faults, batches = random_faults(6, 0.4, 1e4, 1.0), 10 * MANY
    record = survive(Slower, 6, batches, faults, LIMITS, server=server)
    check(record, server, batches)
    happened = Counter(h.what for h in record.happenings)
    print(f"{happened}, {len(record.counted)} steps, {record.attempts} attempts")
    assert happened["kill"] + happened["freeze"] + happened["cut"] >= MANY


class SlowToSave(Small):
    """A checkpoint takes so long that its rank is lost before it is there."""

    def state(self) -> Any:
        import time

        time.sleep(1.0)
        return super().state()


def test_what_the_disk_has_is_what_counts(server: ForkServer, tmp_path: Path) -> None:
    """The coordinator has asked for a checkpoint that nobody has written: it is not there."""
    plan = Plan("disk", every=4, kept=tmp_path / "kept")
    # Four steps take no time, so that the first checkpoint is being written when its rank goes.
    faults = [Fault(0.6, "kill", 0, 0.1)]
    record = survive(SlowToSave, 2, 24, faults, LIMITS, plan, server)
    check(record, server, 24)
    assert record.lost == 8


def test_a_file_of_another_run_is_not_read(server: ForkServer, tmp_path: Path) -> None:
    plan = Plan("disk", every=2, kept=tmp_path / "kept")
    for _ in range(2):
        check(survive(Slow, 2, 12, (), LIMITS, plan, server), server, 12)


class NoState(Small):
    """Raises when all is done."""

    def state(self) -> Any:
        raise ValueError("there is none")


def test_a_job_that_raises_at_the_end_is_heard(server: ForkServer) -> None:
    with pytest.raises(RuntimeError, match="there is none"):
        survive(NoState, 2, 4, server=server)


@pytest.mark.parametrize("batches", [0, -1])
def test_without_a_batch_there_is_nothing_to_do(batches: int) -> None:
    with pytest.raises(Refusal, match="no batch"):
        survive(Small, 2, batches)


@pytest.mark.parametrize("fault", [Fault(0.1, "burn", 1, 0.1), Fault(0.1, "kill", 2, 0.1),
                                   Fault(0.1, "kill", -1, 0.1)])  # fmt: skip
def test_a_fault_is_of_a_known_kind_and_rank(fault: Fault) -> None:
    with pytest.raises(Refusal, match="of a rank that there is"):
        survive(Small, 2, 4, [fault])
