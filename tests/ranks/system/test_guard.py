"""The guard: whichever of owner, program and itself is killed, the rest ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from course_lib.ranks.start.channel import Channel, ChannelClosed
from course_lib.ranks.system.descend import kill_family
from course_lib.ranks.system.guard import guarded
from course_lib.ranks.system.processes import LINUX

ROOT = str(Path(__file__).resolve().parents[3])
PROGRAM = (
    "import os, subprocess, sys, time\n"
    "p = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
    "print(os.getpid(), p.pid, flush=True)\n"
    "time.sleep(float(sys.argv[1]))\nsys.exit(7)\n"
)

linux = pytest.mark.skipif(not LINUX, reason="only Linux finds every descendant")


def start(folder: Path, seconds: float) -> tuple[subprocess.Popen[bytes], Channel, list[int]]:
    """The guard, its channel, and the program with a process that hides from it."""
    log, env = folder / "log", {**os.environ, "PYTHONPATH": ROOT}
    guard, channel = guarded([sys.executable, "-c", PROGRAM, str(seconds)], log, env)
    deadline = time.monotonic() + 60
    while not log.read_text().endswith("\n"):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return guard, channel, [int(word) for word in log.read_text().split()]


def gone(pids: list[int]) -> bool:
    deadline = time.monotonic() + 20
    while any(map(psutil.pid_exists, pids)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not any(map(psutil.pid_exists, pids))


@linux
def test_a_program_that_ends_leaves_nothing(tmp_path: Path) -> None:
    guard, channel, pids = start(tmp_path, 0.1)
    assert channel.receive(60)[0] == {"status": 7}
    assert guard.wait(20) == 0
    assert gone(pids)


@linux
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_killed_program_leaves_nothing(tmp_path: Path, number: int) -> None:
    guard, channel, pids = start(tmp_path, 600)
    os.kill(pids[0], number)
    assert channel.receive(60)[0] == {"status": -number}
    assert guard.wait(20) == 0
    assert gone(pids)


def test_an_owner_that_is_gone_ends_all(tmp_path: Path) -> None:
    guard, channel, pids = start(tmp_path, 600)
    channel.close()
    assert guard.wait(20) == 0
    assert gone(pids)


def test_when_the_guard_is_killed_the_owner_hears_of_it_and_the_program_ends(
    tmp_path: Path,
) -> None:
    guard, channel, pids = start(tmp_path, 600)
    try:
        guard.kill()
        with pytest.raises(ChannelClosed):
            channel.receive(60)
        if not LINUX:
            kill_family(guard.pid)
        assert guard.wait(20) == -signal.SIGKILL
        assert gone(pids[:1]), "on Linux by SIGTERM, at which torchrun ends its own"
    finally:
        with suppress(ProcessLookupError):
            os.kill(pids[1], signal.SIGKILL)
