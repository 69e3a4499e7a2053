"""What children of the preloaded process do in `test_forkserver.py`; each gets (args, open files).

`fds[0]` is the writing end of a pipe that every descendant inherits: whoever reads the other end
sees its end only when the last of them is gone, however they hid.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

from course_lib.ranks.start.channel import Channel
from course_lib.ranks.start.forkserver import ForkServer


def ends(args: dict[str, Any], fds: list[int]) -> None:
    """Ends in the way it is told."""
    if "exit" in args:
        sys.exit(args["exit"])
    if "raise" in args:
        raise ValueError(args["raise"])
    if "signal" in args:
        os.kill(os.getpid(), args["signal"])
        time.sleep(60)


def shows(args: dict[str, Any], fds: list[int]) -> None:
    """Prints what it was given."""
    print(args["text"], os.environ["GIVEN"], os.getpid() == os.getsid(0), flush=True)
    os.system("echo from a program of its own")


def begins(args: dict[str, Any], fds: list[int]) -> None:
    """Tells what the order of a set of names follows from, and how many threads it has."""
    os.write(fds[0], f"{hash('a name')},{threading.active_count()}\n".encode())


def sleeps(args: dict[str, Any], fds: list[int]) -> None:
    """Says that it is there, and stays; its `subprocesses` and it have the pipe open."""
    for _ in range(args.get("subprocesses", 0)):
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], pass_fds=fds[:1])
    if args.get("deaf"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.write(fds[0], b"!")
    time.sleep(600)


def hides(args: dict[str, Any], fds: list[int]) -> None:
    """Starts a process in a session of its own, and one whose parent has ended."""
    if os.fork() == 0:
        os.setsid()
        os.write(fds[0], b"!")
        time.sleep(600)
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.write(fds[0], b"!")
            time.sleep(600)
        os._exit(0)
    os.write(fds[0], b"!")
    time.sleep(600)


def runs_away(args: dict[str, Any], fds: list[int]) -> None:
    """Forks and ends, over and over: its process id is never the same for long."""
    os.write(fds[0], b"!")
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if os.fork():
            os._exit(0)
        os.setsid()


def multiplies(args: dict[str, Any], fds: list[int]) -> None:
    """Every process forks another, and goes on; a pipe holds one byte for each that may be born."""
    os.write(fds[0], b"!")
    while os.read(fds[1], 1):
        if os.fork() == 0:
            os.setpgid(0, 0)
        time.sleep(0.005)
    time.sleep(600)


def asks(args: dict[str, Any], fds: list[int]) -> None:
    """Has the server fork children for it, over a channel of its own."""
    server = ForkServer(Channel.from_fd(fds[1]))
    failing = server.fork("children:ends", {"exit": 9})
    staying = server.fork("children:sleeps", {}, (fds[0],))
    status = failing.wait(240)
    os.write(fds[0], f"{status} {staying.status} {os.getppid()}\n".encode())
    time.sleep(600)
