"""Fixtures of the whole suite: one preloaded process, from which every test forks its ranks."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import psutil
import pytest
import torch

from course_lib.ranks import ForkServer, run_on_ranks
from course_lib.ranks.system.descend import descendants, kill_family


def pytest_make_parametrize_id(val: object) -> str | None:
    """A function is named by its name: by its address, no two processes would name a test alike."""
    return getattr(val, "__qualname__", None)


# Tests run side by side: two threads of each on one core wait for each other longer than they work.
torch.set_num_threads(1)

SERVER = pytest.StashKey[ForkServer]()
PATIENCE = 30.0  # seconds: the preloaded process reaps what it has killed once a second


@pytest.fixture(scope="session")
def server(request: pytest.FixtureRequest) -> Iterator[ForkServer]:
    """The preloaded process."""
    with ForkServer() as started:
        started.wait_ready(240)
        request.config.stash[SERVER] = started
        yield started


@pytest.fixture(scope="module", autouse=True)
def _nothing_is_left(
    request: pytest.FixtureRequest, left_behind: Callable[[int], dict[int, str]]
) -> Iterator[None]:
    """What a module has started on the preloaded process ends with it; else the module is named."""
    yield
    server = request.config.stash.get(SERVER, None)
    left = left_behind(server.pid) if server is not None else {}
    for pid in left:
        kill_family(pid)  # the next module begins with none
    assert left == {}, f"{request.node.name} has left behind what still runs"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A headless Chromium of this machine."""
    from benchmarks.notebook.lab import Missing, chromium  # only where a browser is asked for

    try:
        with chromium() as started:
            yield started
    except Missing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def spares_of() -> Callable[[int], list[int]]:
    """`spares_of(server.pid)`: children without a job, which are none where they are forked.

    What a child does first is to begin a session of its own.
    """

    def call(server: int) -> list[int]:
        found = []
        for child in psutil.Process(server).children():
            with suppress(ProcessLookupError):
                found += [child.pid] if os.getsid(child.pid) == server else []
        return found

    return call


@pytest.fixture(scope="session")
def left_behind(spares_of: Callable[[int], list[int]]) -> Callable[[int], dict[int, str]]:
    """`left_behind(server.pid)`: what still runs under the preloaded process, after some patience.

    Each process id with what it is. Spares are not meant: they have no job.
    """

    def running(server: int) -> dict[int, str]:
        below = descendants(server)  # before the spares: one may get a job, but none gives it back
        found = {}
        for pid in set(below) - set(spares_of(server)):
            with suppress(psutil.NoSuchProcess):
                process = psutil.Process(pid)
                age = time.time() - process.create_time()
                found[pid] = f"{process.status()}, a child of {process.ppid()}, {age:.0f} s old"
        return found

    def call(server: int) -> dict[int, str]:
        until = time.monotonic() + PATIENCE
        while (left := running(server)) and time.monotonic() < until:
            time.sleep(0.05)
        return left

    return call


@pytest.fixture(scope="session")
def ranks(server: ForkServer) -> Callable[..., list[Any]]:
    """`ranks(function, world_size, *args)`: results of `function(group, *args)` on fresh ranks."""

    def call(function: Callable[..., Any], world_size: int, *args: Any) -> list[Any]:
        return run_on_ranks(function, world_size, *args, server=server, timeout=60)

    return call
