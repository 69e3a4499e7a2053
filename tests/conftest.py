"""Fixtures of the whole suite: one preloaded process, from which every test forks its ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from course_lib.ranks import ForkServer, run_on_ranks


def pytest_make_parametrize_id(val: object) -> str | None:
    """A function is named by its name: by its address, no two processes would name a test alike."""
    return getattr(val, "__qualname__", None)


@pytest.fixture(scope="session")
def server() -> Iterator[ForkServer]:
    """The preloaded process."""
    with ForkServer() as started:
        started.wait_ready(120)
        yield started


@pytest.fixture(scope="session")
def ranks(server: ForkServer) -> Callable[..., list[Any]]:
    """`ranks(function, world_size, *args)`: results of `function(group, *args)` on fresh ranks."""

    def call(function: Callable[..., Any], world_size: int, *args: Any) -> list[Any]:
        return run_on_ranks(function, world_size, *args, server=server, timeout=60)

    return call
