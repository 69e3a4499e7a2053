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


def die_with_parent() -> None:
    """This process is killed when the thread that forked it ends."""
    parent = os.getppid()
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
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


def descendants(pid: int) -> list[int]:
    """Every process below `pid`, nearest first."""
    children: dict[int, list[int]] = {}
    for child, parent in parents().items():
        children.setdefault(parent, []).append(child)
    found, look = [], [pid]
    while look:
        below = children.get(look.pop(), [])
        found += below
        look += below
    return found


def strays(known: set[int]) -> list[int]:
    """Children of this process that it did not fork itself: orphans that fell to it."""
    me = os.getpid()
    return [pid for pid, parent in parents().items() if parent == me and pid not in known]


def kill_family(pid: int, patience: float = 2.0) -> None:
    """Kills a process, its group and all its descendants; `pid` 0 means those of this process.

    Everything is stopped first, so that a process that forks on and on cannot outrun the killing.
    """
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        family = ([pid] if pid else []) + descendants(pid or os.getpid())
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for member in family:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(member, number)
        if pid:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
        if not [p for p in descendants(pid or os.getpid()) if not _is_dead(p)]:
            return


def _is_dead(pid: int) -> bool:
    """Whether a process has ended and only waits to be reaped (or is gone)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True
