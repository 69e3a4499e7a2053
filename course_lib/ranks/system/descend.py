"""Processes that must not outlive their purpose: who descends from whom, and how to end them all.

Linux has all of it. Elsewhere a family is what descends from a process or lies in its session: who
has left the session and whose parent has ended stays, and nobody is told that a parent is gone.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress

from course_lib.ranks.system.processes import LINUX, PROCESSES

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


def _prctl(option: int, value: int) -> None:
    if LINUX:
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


def descendants(pid: int) -> list[int]:
    """Every process below `pid`, nearest first."""
    found, look = [], [pid]
    while look:
        below = PROCESSES.children(look.pop())
        found += below
        look += below
    return found


def strays(known: set[int], ended: Iterable[int]) -> list[int]:
    """Orphans: children of this process that it did not fork itself, and what is left of others.

    Args:
        known: children that it forked.
        ended: those of them that have ended, and may have left orphans in their sessions.
    """
    found = [pid for pid in PROCESSES.children(os.getpid()) if pid not in known]
    return found + [pid for leader in ended for pid in PROCESSES.children(leader)]


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
        if not [p for p in descendants(pid or os.getpid()) if not PROCESSES.is_dead(p)]:
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
