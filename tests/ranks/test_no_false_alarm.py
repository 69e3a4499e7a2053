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
from course_lib.ranks import ForkServer, Pool, gather

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
