"""A function on N ranks, and its results: the whole runtime in one call, for tests and scripts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from course_lib.ranks.pool.outcome import Outcome
from course_lib.ranks.pool.pool import Pool
from course_lib.ranks.start.forkserver import ForkServer


def run_on_ranks(
    function: Callable[..., Any],
    world_size: int,
    *args: Any,
    server: ForkServer | None = None,
    timeout: float | None = None,
    hosts: int = 1,
    mbit: float | None = None,
    cluster: str = "",
    equal: str = "",
    watch: Callable[[Outcome], None] | None = None,
) -> list[Any]:
    """Calls `function(group, *args)` on `world_size` fresh ranks and returns the results.

    Args:
        function: any function; it and `args` are pickled by value where needed.
        world_size: how many ranks.
        args: further arguments, the same on every rank.
        server: a preloaded process to start them from; None starts one (seconds).
        timeout: seconds; None for no limit, deadlocks are found in any case.
        hosts: over how many emulated hosts the ranks are dealt out; 1 is none (see `hosts`).
        mbit: speed of each host's link in Mbit/s, if there are several.
        cluster: as `64x8xH100`, to simulate the ranks on such a cluster, in this process and on
            tensors without data (see `course_lib.cluster.simulate`).
        equal: there, which ranks do the same, as `pp8 dp8* tp8*`.
        watch: called now and then with the outcome so far, and with all of it at the end: what
            the ranks have printed is in it, and is shown nowhere else.

    Returns:
        The results in rank order.

    Raises:
        RanksError: it raised on a rank, or did not end.
        Refusal: ranks, hosts or a cluster that cannot be; HostsError: not on this machine.
    """
    if cluster:
        from course_lib.cluster import simulate  # torch is imported where it is needed

        found = simulate(function, world_size, *args, cluster=cluster, equal=equal)
        return [found.value(rank) for rank in range(world_size)]
    with Pool(world_size, server, hosts=hosts, mbit=mbit) as pool:
        return pool.run(function, *args, timeout=timeout, watch=watch)
