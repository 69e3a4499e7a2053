"""A correct program is never called a deadlock, however slowly the machine lets it move."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist

from course_lib import comm
from course_lib.comm import Group
from course_lib.ranks import ForkServer, Pool, RanksError
from course_lib.ranks.hosts.hosts import why_not
from course_lib.ranks.pool import gather

LOOK, STALL = 0.05, 0.3  # seconds: ten times stricter than in a notebook
REPETITIONS = 100
SECONDS = 30  # fewer repetitions where they would take longer


@pytest.fixture
def load() -> Iterator[None]:
    """More busy processes than there are cores."""
    source = f"import os\nwhile os.getppid() == {os.getpid()}:\n    pass"
    burners = [subprocess.Popen([sys.executable, "-c", source]) for _ in range(4)]
    yield
    for burner in burners:
        burner.kill()
        burner.wait()


def talks(group: Group, seed: int) -> float:
    """Many small calls of every kind, some ranks late for some of them."""
    common, own = random.Random(seed), random.Random(seed * 64 + group.rank)
    tensor, other = torch.ones(64), torch.empty(64)
    for _ in range(40):
        kind = common.randrange(7)
        if own.random() < 0.05:
            time.sleep(own.random() / 50)
        if kind == 0:
            comm.all_reduce(tensor, group, "avg")
        elif kind == 1:
            comm.exchange(tensor, group.next, other, group.previous, group)
        elif kind == 2:
            comm.broadcast(tensor, common.randrange(group.size), group)
        elif kind == 3:
            comm.ring_all_reduce(tensor, group, "avg")
        elif kind == 4:
            dist.barrier()
        elif kind == 5:
            works = [dist.all_reduce(torch.ones(8), async_op=True) for _ in range(4)]
            for work in works:
                work.wait()
        else:
            weight = torch.ones(8, requires_grad=True)
            weight.register_post_accumulate_grad_hook(lambda p: dist.all_reduce(p.grad))
            weight.sum().backward()
    return float(tensor.sum())


@pytest.mark.slow
def test_no_false_alarm_under_load(
    server: ForkServer, monkeypatch: pytest.MonkeyPatch, load: None
) -> None:
    monkeypatch.setattr(gather, "LOOK", LOOK)
    end = time.monotonic() + SECONDS
    done = 0
    with Pool(4, server, stall=STALL) as pool:
        for seed in range(REPETITIONS):
            assert pool.run(talks, seed) == [64.0] * 4
            done += 1
            if time.monotonic() > end:
                break
    assert done >= 10


@pytest.fixture(scope="module")
def without_proc() -> Iterator[ForkServer]:
    """A preloaded process whose ranks do not know /proc, also where there is one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COURSE_NO_PROC", "1")
        with ForkServer() as started:
            started.wait_ready(120)
            yield started


def sums_much(group: Group, niceness: int) -> float:
    """One collective that takes much longer than STALL; the first rank seldom gets its turn."""
    if group.rank == 0:
        os.nice(niceness - os.nice(0))
    tensor = torch.ones(1 << 24)  # 64 MiB; a few copies of it are made on the way
    comm.all_reduce(tensor, group, "avg")
    return float(tensor[0])


@pytest.mark.slow
@pytest.mark.parametrize("niceness", [0, 19])
def test_a_long_collective_moves_though_nobody_reads_proc(
    without_proc: ForkServer, monkeypatch: pytest.MonkeyPatch, load: None, niceness: int
) -> None:
    monkeypatch.setattr(gather, "LOOK", LOOK)
    end = time.monotonic() + SECONDS / 2
    with Pool(2, without_proc, stall=STALL) as pool:
        for _ in range(20):
            assert pool.run(sums_much, niceness) == [1.0, 1.0]
            if time.monotonic() > end:
                break


def waits_for_ever(group: Group) -> None:
    if group.rank == 0:
        comm.all_reduce(torch.ones(1 << 20), group)


def test_a_deadlock_is_found_though_nobody_reads_proc(
    without_proc: ForkServer, monkeypatch: pytest.MonkeyPatch, load: None
) -> None:
    monkeypatch.setattr(gather, "LOOK", LOOK)
    with (
        Pool(2, without_proc, stall=STALL) as pool,
        pytest.raises(RanksError, match="Rank 0 waits in all_reduce"),
    ):
        pool.run(waits_for_ever, timeout=60)


def sums_over_a_slow_link(group: Group) -> float:
    tensor = torch.ones(1 << 18)
    comm.all_reduce(tensor, group, "avg")
    return float(tensor[0])


@pytest.mark.skipif(why_not() is not None, reason=f"no emulated hosts here: {why_not()}")
def test_a_message_that_takes_hardly_any_processor_time_moves(
    server: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1 MiB at 2 Mbit/s: four seconds, with a packet every 36 ms, and pauses where one is lost."""
    monkeypatch.setattr(gather, "LOOK", 2 * LOOK)
    with Pool(2, server, stall=4 * STALL, hosts=2, mbit=2) as pool:
        assert pool.run(sums_over_a_slow_link) == [1.0, 1.0]
