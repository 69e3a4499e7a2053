"""What an answer's process may reach: which files, how much, and nothing of other processes.

The kernel holds all of it, where it can (`ranks/system/wall`); `fence.py` puts it into words, and
stands alone where the kernel cannot.
"""

from __future__ import annotations

import ctypes
import os
import resource
import site
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import torch

from course_lib.ranks.system.processes import LINUX, PROCESSES
from course_lib.ranks.system.wall import READ, READ_DIR, WRITE, WRITE_FILE, close_files

PACKAGE = Path(__file__).resolve().parents[2]
FILE_BYTES = 1 << 30
OPEN_FILES = 1024
# Python with what is installed, and the system's libraries, which both load when they need them.
LIBRARIES = tuple(
    {
        os.path.realpath(place)
        for place in (
            *(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib")),
            *(*site.getsitepackages(), str(Path(torch.__file__).parents[1])),
            *("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/share/zoneinfo"),
            *("/etc/ld.so.cache", "/etc/localtime"),
        )
    }
)
# What a process reads of itself, and of the machine: how many processors, how much memory.
MACHINE = (
    *("/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/sys/devices/system"),
    *("/dev/zero", "/dev/random", "/dev/urandom"),
)
# What torch's process group asks the machine for.
NETWORK = (
    *("/sys/class", "/sys/devices", "/sys/bus"),
    *("/etc/hosts", "/etc/host.conf", "/etc/nsswitch.conf", "/etc/resolv.conf", "/etc/gai.conf"),
)
# Of the grader, an answer's process needs what runs there, and nothing of what judges it.
MINE = ("__init__.py", "rank")
# The reader's name, keys and tokens are none of an answer's business.
KEPT = (
    *("PATH", "LANG", "LC_", "TZ", "PYTHON", "OMP_", "MKL_", "OPENBLAS_", "GLOO_", "TORCH"),
    *("PYTORCH_", "CUDA_", "COURSE_START", "COURSE_NO_PROC", "COURSE_DEVICE"),
)


def confine(folder: str, path: str, *, tcp: bool) -> tuple[str, ...]:
    """Closes this process in; it should have no second thread yet.

    Args:
        folder: the run's own, the only one in which files can be written.
        path: the learner's file.
        tcp: whether torch's process group is still to be joined.

    Returns:
        The folders in which files can be written: the run's, and one for temporary files.
    """
    temporary = f"{folder}.tmp"  # beside it: what the answer leaves in its folder may be looked at
    for each in (folder, temporary):
        os.makedirs(each, exist_ok=True)
    tempfile.tempdir = temporary
    _forget_environment()
    os.environ.update(HOME=temporary, TMPDIR=temporary, USER="learner", LOGNAME="learner")
    files = [
        *((place, READ) for place in (*LIBRARIES, *MACHINE, *_rooms(), path)),
        *((str(place), READ_DIR) for place in (PACKAGE, PACKAGE / "grade")),
        *((place, WRITE) for place in (folder, temporary)),
        *((place, READ) for place in (NETWORK if tcp else ())),
        ("/dev/null", READ | WRITE_FILE),
    ]
    close_files(files, tcp=tcp)
    return folder, temporary


def set_limits(memory: int, cpu: float, processes: int) -> None:
    """Sets what the kernel enforces for this process.

    Args:
        memory: bytes of address space beyond what is used now.
        cpu: processor seconds beyond what is used by now.
        processes: processes and threads of this user, on the whole machine; 0 sets no limit.
    """
    wanted = {
        # The judge, who knows the line, is quicker.
        resource.RLIMIT_CPU: int(time.process_time() + 2 * cpu) + 2,
        resource.RLIMIT_FSIZE: FILE_BYTES,
        resource.RLIMIT_NOFILE: OPEN_FILES,
        resource.RLIMIT_CORE: 0,
    }
    if LINUX:  # other kernels take this limit and ignore it: there, only the judge looks
        wanted[resource.RLIMIT_AS] = PROCESSES.memory(os.getpid())[0] + memory
    if processes:
        wanted[resource.RLIMIT_NPROC] = processes
    for name, value in wanted.items():
        with suppress(OSError, ValueError):
            resource.setrlimit(name, (value, value))


def _rooms() -> Iterator[str]:
    """What of the course's library an answer may import."""
    with os.scandir(PACKAGE) as found:
        yield from (each.path for each in found if each.name not in ("grade", "__pycache__"))
    yield from (str(PACKAGE / "grade" / name) for name in MINE)


def _forget_environment() -> None:
    """Leaves of the environment what Python and torch read, and wipes the rest out of memory."""
    kept = {name: value for name, value in os.environ.items() if name.startswith(KEPT)}
    os.environ.clear()
    if LINUX:
        with suppress(OSError, ValueError, IndexError):
            fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
            begin, end = int(fields[47]), int(fields[48])  # env_start and env_end, see proc(5)
            ctypes.memset(begin, 0, end - begin)
    os.environ.update(kept)
