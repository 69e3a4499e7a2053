"""Warm ranks for hundreds of small cases: a pool for each number of ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from course_lib.ranks import ForkServer, Pool


@pytest.fixture(scope="module")
def pool_of(server: ForkServer) -> Iterator[Callable[[int], Pool]]:
    """`pool_of(3)`: three ranks, which stay for the file's next case unless one has died."""
    pools: dict[int, Pool] = {}
    yield lambda size: pools.setdefault(size, Pool(size, server))
    for pool in pools.values():
        pool.close()
