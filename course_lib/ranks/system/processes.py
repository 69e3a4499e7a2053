"""What the system knows of a process: its time, its memory, its threads, its children. Two twins.

`COURSE_NO_PROC=1` takes the portable twin on Linux too, and leaves out what else only Linux has:
then the course behaves as on macOS. Children inherit the variable, and so the choice.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Protocol

LINUX = (
    sys.platform == "linux"
    and not os.environ.get("COURSE_NO_PROC")
    and Path("/proc/self/stat").exists()
)
# What the kernel does not do, for the doctor and the score card.
LACKS = "" if LINUX else "no kernel limits an answer's memory here; the grader looks at it instead"

Threads = dict[str, list[float]]


class Processes(Protocol):
    """What can be asked. A process that is gone has no time, no memory and no children."""

    def cpu(self, pid: int) -> float:
        """Processor seconds that it has used."""

    def memory(self, pid: int) -> tuple[int, int]:
        """Bytes of address space, and bytes in memory that are in no file, as far as is known."""

    def thread_count(self, pid: int) -> int:
        """How many threads it has; 0 if it is gone."""

    def bytes_written(self, pid: int) -> int:
        """Bytes that it has written to files, also those without a name; 0 where nobody counts."""

    def threads(self, program: int) -> tuple[Threads, bool]:
        """How much every thread of this process has done; the one that asks may be left out.

        Args:
            program: `threading.get_ident()` of the thread that runs the rank's program.

        Returns:
            For each thread how often it has slept, as far as is known, and its processor seconds,
            under `main` for the rank's program and some number for the others; and whether the
            program would go on if it were given a processor, as far as is known.
        """

    def children(self, pid: int) -> list[int]:
        """The processes that have `pid` as their parent, or had one in its session."""

    def is_dead(self, pid: int) -> bool:
        """Whether it has ended and only waits to be reaped, or is gone."""

    def is_stopped(self, pid: int) -> bool:
        """Whether a signal like SIGSTOP keeps it from running."""

    def is_runnable(self, pid: int) -> bool:
        """Whether its first thread runs, or waits for a processor; False where nobody tells."""

    def count(self, user: int) -> int:
        """Processes and threads that a user has on this machine."""

    def bytes_read(self) -> int:
        """Bytes that this process has read from files so far; 0 where nobody counts them."""


def _twin() -> Processes:
    if LINUX:
        from course_lib.ranks.system.proc import Proc

        return Proc()
    from course_lib.ranks.system.portable import Portable  # psutil only where it is needed

    return Portable()


PROCESSES = _twin()
