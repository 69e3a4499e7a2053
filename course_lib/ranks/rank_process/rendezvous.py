"""How ranks that were forked find each other: one store, the variables of torchrun, one group.

The store listens on a socket that was bound before the fork, so no port can be taken in between,
and everything stays on the loopback device. Ranks on emulated hosts go there between the two: the
store's connections are made and stay on the loopback, the group's are made on the hosts' links.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from course_lib.ranks.hosts.hosts import LINK, enter
from course_lib.ranks.start.forkserver import MEET_WITHIN
from course_lib.ranks.start.launch import LOOPBACK
from course_lib.trace import Refusal

HOST = "127.0.0.1"


def meet(
    rank: int,
    world_size: int,
    port: int,
    listen_fd: int | None,
    backend: str = "gloo",
    patience: timedelta = timedelta(hours=2),
    hosts: int = 1,
    network: int | None = None,
) -> None:
    """Sets the environment of a rank and initialises the default process group.

    Args:
        rank: this rank; all ranks are on this machine, if not on hosts emulated there.
        world_size: how many there are.
        port: of the store.
        listen_fd: on rank 0, the socket bound to that port; None on the others.
        backend: `gloo`, or NCCL beside it (see `comm.start.choose_backend`).
        patience: how long a collective may take before the backend gives up. Long, since what
            watches these ranks is quicker and says more.
        hosts: over how many hosts the ranks are dealt out, the same number to each.
        network: the emulated host of this rank as an open file, closed here; None for none.
    """
    take_place(rank, world_size, hosts)
    os.environ.update(
        MASTER_ADDR=HOST,
        MASTER_PORT=str(port),
        GLOO_SOCKET_IFNAME=LOOPBACK if network is None else LINK,
    )
    soon = timedelta(seconds=MEET_WITHIN)
    if listen_fd is None:
        store = dist.TCPStore(HOST, port, world_size, False, soon)
    else:
        store = dist.TCPStore(HOST, port, world_size, True, soon, master_listen_fd=listen_fd)
    if network is not None:
        enter(network)
    dist.init_process_group(
        backend, store=store, rank=rank, world_size=world_size, timeout=patience
    )


def take_place(rank: int, world_size: int, hosts: int = 1) -> None:
    """Sets the variables by which torchrun tells a process which rank it is, and its priority."""
    per_host = world_size // hosts
    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank % per_host),
        GROUP_RANK=str(rank // per_host),
        WORLD_SIZE=str(world_size),
        LOCAL_WORLD_SIZE=str(per_host),
        GROUP_WORLD_SIZE=str(hosts),
    )
    if sys.platform == "linux":
        # More ranks than cores: without this, a rank that has just sent is often preempted by the
        # one that it woke up, and a small all-reduce of 4 ranks on 2 cores takes 5 ms, not 1.
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def refuse_second(start: Callable[..., None]) -> Callable[..., None]:
    """`init_process_group` for ranks that have met already: a pasted script begins with it."""

    def init_process_group(*args: Any, **kwargs: Any) -> None:
        if dist.is_initialized():
            raise Refusal(
                "init_process_group in a cell of %%ranks",
                "ranks that have met already: `group`, and torch's default group",
                "a process joins it once; leave the line out here, or use %%torchrun",
            )
        start(*args, **kwargs)

    return init_process_group
