"""What Linux says of processes, from its own files."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from pathlib import Path

TICK = 1 / os.sysconf("SC_CLK_TCK")  # seconds: in these the kernel counts processor time


class Proc:
    """The twin that reads /proc; what its methods mean is said at `Processes`."""

    def cpu(self, pid: int) -> float:
        """User's and system's time."""
        return _cpu(_fields(Path(f"/proc/{pid}/stat")))

    def memory(self, pid: int) -> tuple[int, int]:
        """Memory that it shares with who forked it counts, and so does that of nameless files."""
        with suppress(OSError, KeyError, ValueError):
            said = _table(Path(f"/proc/{pid}/status"))
            size, private, shared = (
                int(said[name].split()[0]) << 10 for name in ("VmSize", "RssAnon", "RssShmem")
            )
            return size, private + shared
        return 0, 0

    def thread_count(self, pid: int) -> int:
        """As its own file says."""
        fields = _fields(Path(f"/proc/{pid}/stat"))
        return int(fields[17]) if fields else 0

    def bytes_written(self, pid: int) -> int:
        """By calls, or by changing what lies in memory of a file: one of the two sees it."""
        with suppress(OSError, KeyError, ValueError):
            said = _table(Path(f"/proc/{pid}/io"))
            return max(int(said["wchar"]), int(said["write_bytes"]))
        return 0

    def threads(self, program: int) -> tuple[dict[str, list[float]], bool]:
        """Voluntary context switches count as sleeps; the thread that asks is left out.

        Where no file can be opened any more, only the time of the whole process is known.
        """
        try:
            return self._threads(program)
        except OSError:
            return {"all": [0, time.process_time()]}, False

    def _threads(self, program: int) -> tuple[dict[str, list[float]], bool]:
        asking, runnable = threading.get_native_id(), False
        found: dict[str, list[float]] = {}
        main = str(_native_ids().get(program))
        for name in os.listdir("/proc/self/task"):
            entry = Path("/proc/self/task", name)
            if name == str(asking):
                continue
            with suppress(OSError, ValueError, IndexError, StopIteration):
                fields = _fields(entry / "stat")
                lines = (entry / "status").read_text().splitlines()
                slept = next(line for line in lines if line.startswith("voluntary_ctxt_switches"))
                key = "main" if entry.name == main else entry.name
                found[key] = [int(slept.split()[1]), _cpu(fields)]
                runnable = runnable or (key == "main" and fields[0] == "R")
        return found, runnable

    def children(self, pid: int) -> list[int]:
        """Orphans are among them where this process is their subreaper."""
        try:
            lists = list(Path(f"/proc/{pid}/task").glob("*/children"))
        except (ProcessLookupError, FileNotFoundError):  # it has ended while the kernel looked
            return []
        if not lists and Path(f"/proc/{pid}").exists():  # a kernel without these lists
            return [child for child, parent in _parents().items() if parent == pid]
        found: list[int] = []
        for path in lists:
            with suppress(OSError):
                found += map(int, path.read_text().split())
        return found

    def is_dead(self, pid: int) -> bool:
        """Zombies are dead."""
        return _state(pid) in "ZX"

    def is_stopped(self, pid: int) -> bool:
        """Stopped by a signal, and not by a debugger."""
        return _state(pid) == "T"

    def is_runnable(self, pid: int) -> bool:
        """The scheduler's own word."""
        return _state(pid) == "R"

    def count(self, user: int) -> int:
        """Each thread is one, as for RLIMIT_NPROC."""
        found = 0
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if entry.stat().st_uid == user:
                    found += len(os.listdir(entry / "task"))
        return found

    def bytes_read(self) -> int:
        """Also what came out of the cache, and what is no file."""
        with suppress(OSError):
            return int(_table(Path("/proc/self/io"))["rchar"])
        return 0


def _table(path: Path) -> dict[str, str]:
    """What a file with lines like `VmSize: 1000 kB` says under each name."""
    lines = (line.partition(":") for line in path.read_text().splitlines())
    return {name: value.strip() for name, _, value in lines}


def _fields(path: Path) -> list[str]:
    """The fields of a `stat` file from the state on; none if the process is gone."""
    with suppress(OSError):
        return path.read_text().rpartition(")")[2].split()
    return []


def _cpu(fields: list[str]) -> float:
    return (int(fields[11]) + int(fields[12])) * TICK if fields else 0.0


def _state(pid: int) -> str:
    """The letter of a process's state in proc(5); X if it is gone."""
    return (_fields(Path(f"/proc/{pid}/stat")) or ["X"])[0]


def _parents() -> dict[int, int]:
    """Process id to parent's, of every process that can be seen."""
    entries = [(entry.name, _fields(entry / "stat")) for entry in Path("/proc").glob("[0-9]*")]
    return {int(name): int(fields[1]) for name, fields in entries if fields}


def _native_ids() -> dict[int | None, int | None]:
    """Python's numbers of threads to the kernel's."""
    native = {thread.ident: thread.native_id for thread in threading.enumerate()}
    # In a forked child, Python 3.11 still has the parent's number for the only thread it kept.
    native[threading.main_thread().ident] = os.getpid()
    return native
