"""Every call between ranks is tried on each network: gloo, and the switch of the grading."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from course_lib.ranks import ForkServer, run_on_ranks
from tests.comm.over_switch import over_switch


@pytest.fixture(params=["gloo", "switch"])
def ranks(request: pytest.FixtureRequest, server: ForkServer) -> Callable[..., list[Any]]:
    """`ranks(function, world_size, *args)`, as everywhere, on both networks."""

    def call(function: Callable[..., Any], world_size: int, *args: Any) -> list[Any]:
        carried = over_switch(function) if request.param == "switch" else function
        return run_on_ranks(carried, world_size, *args, server=server, timeout=60)

    return call
