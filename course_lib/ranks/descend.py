"""Processes that must not outlive their purpose: who descends from whom, and how to end them all.

Notebook: none; the runtime and the grader rest on it.
Source: prctl(2), PR_SET_PDEATHSIG and PR_SET_CHILD_SUBREAPER; proc(5).
Costs: a read of /proc for each clean-up, a few milliseconds.
The production version is a container or a cgroup, which ends everything inside it at once.

Linux has all of it. Elsewhere a process group is ended, and a process that left its group stays.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def die_with_parent(number: int = signal.SIGKILL) -> None:
    """This process gets a signal when the thread that forked it ends."""
    parent = os.getppid()
    _prctl(PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:  # it ended before the call above
        os._exit(1)


def subreaper() -> None:
    """Orphaned descendants become children of this process, so that it can find and end them."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def parents() -> dict[int, int]:
    """Process id to parent's, of every process that can be seen; empty without /proc."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            found[int(entry.name)] = int(fields[1])
    return found


def children(pid: int) -> list[int]:
    """The processes that have `pid` as their parent; empty without /proc."""
    lists = list(Path(f"/proc/{pid}/task").glob("*/children"))
    if not lists:  # a kernel without these lists
        return [child for child, parent in parents().items() if parent == pid]
    found: list[int] = []
    for path in lists:
        with suppress(OSError):
            found += map(int, path.read_text().split())
    return found


def descendants(pid: int) -> list[int]:
    """Every process below `pid`, nearest first."""
    found, look = [], [pid]
    while look:
        below = children(look.pop())
        found += below
        look += below
    return found


def strays(known: set[int]) -> list[int]:
    """Children of this process that it did not fork itself: orphans that fell to it."""
    return [pid for pid in children(os.getpid()) if pid not in known]


def kill_family(pid: int, patience: float = 2.0) -> None:
    """Kills a process, its group and all its descendants; `pid` 0 means those of this process.

    Everything is stopped first, so that a process that forks on and on cannot outrun the killing.
    """
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        for member in _stopped(pid):
            _signal(member, signal.SIGKILL)
        if pid:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
        if not [p for p in descendants(pid or os.getpid()) if not _is_dead(p)]:
            return


def _stopped(pid: int) -> set[int]:
    """Stops a family; returns its members once a look finds no more of them."""
    stopped: set[int] = set()
    while True:
        new = {*([pid] if pid else []), *descendants(pid or os.getpid())} - stopped
        if not new:
            return stopped
        for member in new:
            _signal(member, signal.SIGSTOP)
        stopped |= new


def _signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _is_dead(pid: int) -> bool:
    """Whether a process has ended and only waits to be reaped (or is gone)."""
    return _state(pid) in "ZX"


def is_stopped(pid: int) -> bool:
    """Whether a signal like SIGSTOP keeps a process from running; False without /proc."""
    return _state(pid) == "T"


def _state(pid: int) -> str:
    """The letter of a process's state in proc(5); X if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"
