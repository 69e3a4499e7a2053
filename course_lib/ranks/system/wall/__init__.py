"""A wall around this process, made of what the kernel has: files, calls, privileges."""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Iterable
from contextlib import suppress

from course_lib.ranks.system.wall import landlock, seccomp
from course_lib.ranks.system.wall.landlock import READ, READ_DIR, WRITE, WRITE_FILE

__all__ = ["READ", "READ_DIR", "WRITE", "WRITE_FILE", "close_calls", "close_files", "lacks"]

LINUX = sys.platform == "linux"  # with or without /proc
CAPABILITIES = 0x20080522  # the version of `capset` with 64 of them


def close_files(files: Iterable[tuple[str, int]], *, tcp: bool) -> None:
    """Refuses this process all other files, signals to others, and privileges, for good.

    It holds for the thread that calls and for all that it starts, so the process should have no
    other by then.

    Args:
        files: a path, and what it is allowed (`READ`, `WRITE`, ...).
        tcp: whether TCP connections are allowed.
    """
    if LINUX and landlock.version():
        ctypes.CDLL(None).prctl(seccomp.NO_NEW_PRIVILEGES, 1, 0, 0, 0)
        landlock.restrict(files, tcp=tcp)
    if LINUX:
        _drop_privileges()
    if LINUX and tcp and seccomp.available():  # torch's store would begin one, and need it later
        seccomp.install((seccomp.RINGS,))


def close_calls(*, tcp: bool) -> None:
    """Refuses all threads of this process new processes, networks, and what only root needs.

    Args:
        tcp: whether TCP connections are allowed.
    """
    if LINUX and seccomp.available():
        seccomp.install(seccomp.rules(os.getpid(), tcp=tcp))


def lacks() -> tuple[str, ...]:
    """What this machine's kernel cannot keep a process from, in words; empty if there is all."""
    known, calls = landlock.version() if LINUX else 0, LINUX and seccomp.available()
    found = []
    if known < 1:
        found.append("other files (no Landlock)")
    elif known < 3:
        found.append("cutting other files short (an old Landlock)")
    if not calls:
        found.append("starting processes and using the network (no seccomp)")
    return tuple(found)


def _drop_privileges() -> None:
    """Takes from root what makes it more than an ordinary user who owns the same files."""
    head = struct.pack("Ii", CAPABILITIES, 0)
    with suppress(AttributeError):
        ctypes.CDLL(None).capset(head, bytes(24))
