"""What every Unix says of processes, through psutil: the twin for where there is no /proc.

Only what psutil has on macOS is asked: no list of a thread's sleeps, and no count of bytes read.
An orphan falls to the first process there, so families are held together by their sessions: who has
left both its parent and its session is not found any more.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress

import psutil

FIRST_THREAD = 1  # psutil numbers the threads of a process from one on macOS; Linux has real ids


class Portable:
    """The twin that asks psutil; what its methods mean is said at `Processes`."""

    def cpu(self, pid: int) -> float:
        """User's and system's time."""
        with suppress(psutil.Error):
            times = psutil.Process(pid).cpu_times()
            return times.user + times.system
        return 0.0

    def memory(self, pid: int) -> tuple[int, int]:
        """What is in memory counts as its own; what of it is shared, only Linux tells."""
        with suppress(psutil.Error):
            found = psutil.Process(pid).memory_info()
            return found.vms, found.rss
        return 0, 0

    def thread_count(self, pid: int) -> int:
        """As psutil says."""
        with suppress(psutil.Error):
            return int(psutil.Process(pid).num_threads())
        return 0

    def bytes_written(self, pid: int) -> int:
        """Nobody counts them on macOS."""
        return 0

    def threads(self, program: int) -> tuple[dict[str, list[float]], bool]:
        """The program is taken to run in the first thread; nobody counts a thread's sleeps."""
        first = (FIRST_THREAD, os.getpid())
        try:
            all_threads = psutil.Process().threads()
        except (psutil.Error, OSError):  # the whole process, then
            return {"all": [0, time.process_time()]}, False
        return {
            "main" if one.id in first else str(one.id): [0, one.user_time + one.system_time]
            for one in all_threads
        }, False

    def children(self, pid: int) -> list[int]:
        """With orphans of its session: what is in it though its parent is not has lost its own."""
        found = []
        for number in psutil.pids():
            with suppress(psutil.Error, OSError):
                parent = psutil.Process(number).ppid()
                if parent == pid or (number != pid == os.getsid(number) != os.getsid(parent)):
                    found.append(number)
        return found

    def is_dead(self, pid: int) -> bool:
        """Zombies are dead."""
        try:
            return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
        except psutil.Error:
            return True

    def is_stopped(self, pid: int) -> bool:
        """Stopped by a signal."""
        with suppress(psutil.Error):
            return bool(psutil.Process(pid).status() == psutil.STATUS_STOPPED)
        return False

    def is_runnable(self, pid: int) -> bool:
        """Nobody tells: on macOS whatever is not stopped is called running."""
        return False

    def count(self, user: int) -> int:
        """Each thread is one, which is more than macOS counts for RLIMIT_NPROC."""
        found = 0
        for number in psutil.pids():
            with suppress(psutil.Error):
                process = psutil.Process(number)
                found += process.num_threads() if process.uids().real == user else 0
        return found

    def bytes_read(self) -> int:
        """Nobody counts them."""
        return 0
