"""What a kill may leave behind, counted: everything that carries the mark of one test.

Only processes with the mark in their environment are looked at, and only folders of the test's own,
so that whoever else runs the same programs on this machine is not counted.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.ranks.open_files import open_files

MARK = "COURSE_KILL_MARK"
SHARED = Path("/dev/shm")  # POSIX shared memory, and semaphores as `sem.*`
HOME_NETWORK = os.readlink("/proc/self/ns/net") if Path("/proc/self/ns/net").exists() else ""


def marked(mark: str) -> dict[int, str]:
    """Process id to command line, of every process that runs and was started under a mark."""
    wanted, found = f"{MARK}={mark}".encode(), {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                words = (entry / "cmdline").read_bytes().split(b"\0")
                found[int(entry.name)] = b" ".join(words).decode(errors="replace")[:100].strip()
    return found


def ended(pids: Iterable[int], number: int, seconds: float = 20) -> bool:
    """Waits until processes that a kill ends have ended; whether one had not when it was asked.

    A large process takes its time to end, and until then its children do not know.
    """
    if number in (signal.SIGSTOP, signal.SIGINT):
        return False
    deadline, waited = time.monotonic() + seconds, False
    while any(state(pid) not in "ZX" for pid in pids) and time.monotonic() < deadline:
        waited = True
        time.sleep(0.05)
    return waited


def state(pid: int) -> str:
    """The letter of proc(5); X if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


def zombies(parents: Iterable[int]) -> list[str]:
    """Children of these processes that have ended and were not waited for."""
    found, wanted = [], set(parents)
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):
            state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            if state == "Z" and int(parent) in wanted:
                found.append(f"zombie of {parent}")
    return found


def opened(pid: int) -> Counter[str]:
    """What a process has open, by kind: numbers of sockets and pipes differ each time."""
    found: Counter[str] = Counter()
    for name, times in open_files(pid).items():
        found[re.sub(r"\[\d+\]|:\d+$| \(deleted\)", "", name)] += times
    return found


def shared_maps(pid: int) -> int:
    """How many anonymous files of ours a process has in its memory."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/maps").read_text().count("memfd:course")
    return 0


def networks(pids: Iterable[int] | None = None) -> set[str]:
    """Network namespaces, but for the machine's own, that processes are in or hold open."""
    found = set()
    for pid in ["[0-9]*"] if pids is None else pids:
        for pattern in ("task/*/ns/net", "fd/*"):
            for path in Path("/proc").glob(f"{pid}/{pattern}"):
                with suppress(OSError):
                    found.add(os.readlink(path))
    return {name for name in found if name.startswith("net:[")} - {HOME_NETWORK}


def held_segments() -> set[str]:
    """Names in /dev/shm that a process has open or in its memory."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            found |= set(re.findall(r"/dev/shm/(\S+)", (entry / "maps").read_text()))
        for path in entry.glob("fd/*"):
            with suppress(OSError):
                found |= set(re.findall(r"/dev/shm/(\S+)", os.readlink(path)))
    return found


def segments() -> set[str]:
    return set(os.listdir(SHARED)) if SHARED.exists() else set()


def files_in(folder: Path) -> set[str]:
    """What is in a folder; a checkpoint is as good as the next one, torch has a cache for all."""
    names = (str(path.relative_to(folder)) for path in folder.rglob("*"))
    names = (name for name in names if not name.startswith("torchinductor_"))
    return {re.sub(r"step-\d+|__pycache__.*", "step", name) for name in names}


@dataclass
class Census:
    """What there is of one mark at one moment.

    Args:
        mark: of the processes.
        folders: of the test's own, to be looked through: temporary ones, and those of a job.
        survivors: processes that should live on, whose open files are counted.
    """

    mark: str
    folders: tuple[Path, ...]
    survivors: tuple[int, ...] = ()
    processes: int = 0
    files: set[str] = field(default_factory=set)
    open: Counter[str] = field(default_factory=Counter)
    maps: int = 0
    segments: set[str] = field(default_factory=set)
    devices: set[str] = field(default_factory=set)
    networks: set[str] = field(default_factory=set)

    def take(self) -> Census:
        """The same census, taken now."""
        now = Census(self.mark, self.folders, self.survivors)
        found = marked(self.mark)
        now.processes = len(found)
        for folder in self.folders:
            now.files |= {f"{folder.name}/{name}" for name in files_in(folder)}
        for pid in self.survivors:
            now.open += opened(pid)
            now.maps += shared_maps(pid)
        now.segments = segments()
        now.devices = (
            set(os.listdir("/sys/class/net")) if Path("/sys/class/net").exists() else set()
        )
        now.networks = networks(found)
        return now

    def beyond(self, before: Census) -> list[str]:
        """What is there now and was not before, in words; nothing is what we want."""
        found = []
        if self.processes > before.processes:
            found += [f"process {pid}: {line}" for pid, line in marked(self.mark).items()]
        found += [f"file {name}" for name in sorted(self.files - before.files)]
        found += [f"open {name} × {count}" for name, count in (self.open - before.open).items()]
        if self.maps > before.maps:
            found.append(f"{self.maps - before.maps} anonymous files in memory")
        new = self.segments - before.segments
        found += [f"segment {name}" for name in sorted(new - held_segments())]
        found += [f"device {name}" for name in sorted(self.devices - before.devices)]
        if len(self.networks) > len(before.networks):
            found += [f"network {name}" for name in sorted(self.networks - before.networks)]
        return found + zombies(self.survivors)


def left_after(
    before: Census, seconds: float, ready: Callable[[], bool] = lambda: True
) -> list[str]:
    """What is left once it has had some seconds to go away; looks again and again."""
    deadline = time.monotonic() + seconds
    while True:
        left = before.take().beyond(before) if ready() else ["not ready"]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.1)
