"""Fixtures of the whole suite: one preloaded process, from which every test forks its ranks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import psutil
import pytest

from course_lib.ranks import ForkServer, run_on_ranks


def pytest_make_parametrize_id(val: object) -> str | None:
    """A function is named by its name: by its address, no two processes would name a test alike."""
    return getattr(val, "__qualname__", None)


@pytest.fixture(scope="session")
def server() -> Iterator[ForkServer]:
    """The preloaded process."""
    with ForkServer() as started:
        started.wait_ready(240)
        yield started


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
def ranks(server: ForkServer) -> Callable[..., list[Any]]:
    """`ranks(function, world_size, *args)`: results of `function(group, *args)` on fresh ranks."""

    def call(function: Callable[..., Any], world_size: int, *args: Any) -> list[Any]:
        return run_on_ranks(function, world_size, *args, server=server, timeout=60)

    return call
