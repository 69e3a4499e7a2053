"""A run that needs slow links: live where hosts can be emulated, else from a recording."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from course_lib.ranks.hosts.hosts import HostsError
from course_lib.ranks.pool.run import run_on_ranks
from course_lib.ranks.start.forkserver import ForkServer
from course_lib.trace import Ledger, Refusal, Timeline


@dataclass(frozen=True)
class Run:
    """What a function gave on ranks of emulated hosts.

    Attributes:
        world_size: how many ranks.
        hosts: on how many hosts.
        mbit: speed of each host's link in Mbit/s.
        machine: where it ran, in words.
        values: what the function returned, in rank order, as JSON has it: no tuples, no tensors,
            keys are text.
    """

    world_size: int
    hosts: int
    mbit: float
    machine: str
    values: list[Any]

    def timeline(self, *keys: str) -> Timeline:
        """The ledgers that the ranks returned, as `Ledger.to_dict` gave them.

        Args:
            keys: where the ledger lies in a rank's value: `("bucketed", "ledger")`.
        """
        found = []
        for value in self.values:
            for key in keys:
                value = value[key]
            found.append(Ledger.from_dict(value))
        return Timeline(found)

    def __str__(self) -> str:
        count = "1 rank" if self.world_size == 1 else f"{self.world_size} ranks"
        return f"{count} on {self.hosts} hosts joined at {self.mbit:g} Mbit/s"

    def save(self, path: str | Path) -> None:
        """Writes the recording, without white space."""
        Path(path).write_text(json.dumps(asdict(self), separators=(",", ":")) + "\n")

    @staticmethod
    def load(path: str | Path) -> Run:
        """The recording that `save` wrote."""
        return Run(**json.loads(Path(path).read_text()))


def run_live(
    function: Callable[..., Any],
    world_size: int,
    *args: Any,
    hosts: int,
    mbit: float,
    server: ForkServer | None = None,
    timeout: float | None = None,
) -> Run:
    """Calls `function(group, *args)` on ranks of emulated hosts; returns what can be saved.

    Args:
        function: its value must be data that JSON can hold.
        world_size: how many ranks.
        args: further arguments, the same on every rank.
        hosts: on how many hosts.
        mbit: speed of their links in Mbit/s.
        server: a preloaded process, as for `run_on_ranks`.
        timeout: seconds; None for no limit.

    Raises:
        HostsError: hosts cannot be emulated here.
        TypeError: the function returned what JSON cannot hold.
    """
    values = run_on_ranks(
        function, world_size, *args, server=server, timeout=timeout, hosts=hosts, mbit=mbit
    )
    return Run(world_size, hosts, mbit, machine_words(), json.loads(json.dumps(values)))


def core_count() -> int | None:
    """Processors that this process may use; None if the system does not say."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def machine_words() -> str:
    """This machine: cores, memory and versions; no names and no paths."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{core_count()} cores, {memory:.0f} GiB of memory, "
        f"{platform.system()} {platform.machine()}, Python {platform.python_version()}, "
        f"torch {torch.__version__}"
    )


def live_or_recorded(
    path: str | Path,
    function: Callable[..., Any],
    world_size: int,
    *args: Any,
    hosts: int,
    mbit: float,
    server: ForkServer | None = None,
    timeout: float | None = None,
) -> Run:
    """The run itself where hosts can be emulated, else the recording of it; prints which.

    With COURSE_RECORDED=1 in the environment it is the recording, if there is one: tests of
    notebooks compare times, and how busy their machine is must not matter.

    Args:
        path: the recording. A live run makes it where it is missing, so a lesson that has changed
            is recorded again by deleting the file.
        function: and all else: see `run_live`.
        world_size: how many ranks.
        args: further arguments.
        hosts: on how many hosts.
        mbit: speed of their links in Mbit/s.
        server: a preloaded process.
        timeout: seconds; None for no limit.

    Raises:
        Refusal: the recording is not of such a run.
    """
    try:
        if os.environ.get("COURSE_RECORDED") == "1" and Path(path).exists():
            raise HostsError("a run of hosts", "recordings are asked for", "COURSE_RECORDED=1")
        run = run_live(
            function, world_size, *args, hosts=hosts, mbit=mbit, server=server, timeout=timeout
        )
        if not Path(path).exists():
            run.save(path)
        print(f"Live: {run}.")
    except HostsError as error:
        run = Run.load(path)
        if (run.world_size, run.hosts, run.mbit) != (world_size, hosts, mbit):
            raise Refusal(
                f"{world_size} ranks on {hosts} hosts joined at {mbit:g} Mbit/s",
                f"a recording of {run}, in {Path(path).name}",
                f"it cannot run here ({error.found}), and the recording is of another run",
            ) from None
        print(f"Recorded: {run}, on {run.machine}; here, {error.found}.")
    return run
