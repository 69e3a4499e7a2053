"""Processes that are started ahead of need, for where one that has torch must not be forked.

A process leaves the stock with its first job and is then what a fork would be: the same function is
called, with the same open files. It ends when the server does, of which its channel tells it.
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import Any

from course_lib.ranks.start.channel import Channel, ChannelClosed
from course_lib.ranks.system.descend import die_with_parent
from course_lib.ranks.system.processes import LINUX

START = "from course_lib.ranks.start.spares import main; main()"
FEWEST, MOST = 2, 4  # in the stock; each costs memory for as long as nobody needs it
AT_ONCE = max(1, (os.cpu_count() or 1) // 2)  # the other half of the cores is for the ranks
FAILURES = 3  # processes that end before they are warm, after which the next would too
PATIENCE = 5.0  # seconds of waiting without a word


class Spare:
    """One process, as the server sees it.

    Args:
        env: its environment.

    Attributes:
        channel: its job goes there; once that has begun, only its closing means something.
        pid: its process id.
        warm: whether it has imported all that it could need.
        fds: open files of its job, kept until they have arrived: macOS may lose one before that.
        since: when it got its job.
        begun: whether it has its job, and torch.
    """

    def __init__(self, env: dict[str, str]) -> None:
        self.channel, theirs = Channel.pair()
        process = subprocess.Popen(
            [sys.executable, "-c", START, str(theirs.fileno())], pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=env,
        )  # fmt: skip
        theirs.close()
        process.returncode = 0  # the server waits for all its children; nobody else must
        self.pid = process.pid
        self.warm = self.begun = False
        self.fds: list[int] = []
        self.since = 0.0

    def fileno(self) -> int:
        """The channel's file number, for select."""
        return self.channel.fileno()

    def send(self, message: dict[str, Any], fds: list[int]) -> None:
        """Sends its job.

        Raises:
            ChannelClosed: the process has ended.
        """
        self.channel.send(message, fds=tuple(fds))
        self.fds, self.since = fds, time.monotonic()

    def hear(self) -> None:
        """Takes what it says: that it is warm, or that its job has begun."""
        with suppress(ChannelClosed, OSError):
            message, _, _ = self.channel.receive()
            self.warm = True
            if message["did"] == "begin":
                self.begun = True
                self.let_go()

    def let_go(self) -> None:
        """Closes the server's copies of what belongs to its job."""
        while self.fds:
            os.close(self.fds.pop())


class Spares:
    """The stock of processes without a job, and those that have got one.

    It holds as many as ranks have run at once so far, from `FEWEST` to `MOST`.
    """

    def __init__(self) -> None:
        self.stock: list[Spare] = []
        self.given: dict[int, Spare] = {}
        self.size = FEWEST
        self._failures = 0
        self._complained = False
        # As forks do, ranks agree on the order of what is in a set.
        seed = str(int.from_bytes(os.urandom(4), "big"))
        self._env = {"PYTHONHASHSEED": seed, **os.environ}

    def pids(self) -> set[int]:
        """Process ids of the stock."""
        return {spare.pid for spare in self.stock}

    def speakers(self) -> list[Spare]:
        """Those that may have something to say; what a job says later is not listened to."""
        return self.stock + [spare for spare in self.given.values() if not spare.begun]

    @property
    def ready(self) -> bool:
        """Whether one of them has been warm."""
        return any(spare.warm for spare in [*self.stock, *self.given.values()])

    def give(self, message: dict[str, Any], fds: list[int]) -> int:
        """Gives a job to the process that can begin soonest; its process id."""
        while True:
            spare = max(self.stock, key=lambda spare: spare.warm, default=None) or self._start()
            self.stock.remove(spare)
            self.given[spare.pid] = spare
            with suppress(ChannelClosed):  # it has ended, and the next one gets the job
                spare.send(message, fds)
                return spare.pid

    def _start(self) -> Spare:
        self.stock.append(Spare(self._env))
        return self.stock[-1]

    def refill(self) -> None:
        """Starts processes, a few at a time, unless some with a job still need the processor."""
        self.size = min(MOST, max(self.size, len(self.given)))
        while (
            all(spare.begun for spare in self.given.values())
            and len(self.stock) < self.size
            and sum(not spare.warm for spare in self.stock) < AT_ONCE
        ):
            self._start()

    def ended(self, pid: int) -> None:
        """Forgets a process that has ended.

        Raises:
            RuntimeError: none of them lives until it is warm.
        """
        spare = self.given.pop(pid, None) or next((s for s in self.stock if s.pid == pid), None)
        if spare is None:
            return
        if spare in self.stock:
            self.stock.remove(spare)
            self._failures = 0 if spare.warm else self._failures + 1
        spare.let_go()
        spare.channel.close()
        if self._failures == FAILURES:
            raise RuntimeError(f"{FAILURES} spare processes have ended while they imported torch")

    def complaint(self) -> str:
        """Whom somebody has waited for in vain; "" if there is nothing new to say."""
        late = [spare.since for spare in self.given.values() if not spare.begun]
        if not late:
            self._complained = False
        elif not self._complained and time.monotonic() - min(late) > PATIENCE:
            self._complained = True
            who = "a new process" if len(late) == 1 else f"{len(late)} new processes"
            return f"Waiting for {who} to import torch."
        return ""


# --- in the process itself -----------------------------------------------------------------------
def main() -> None:
    """Waits for a job over the channel whose file number is the first argument, and does it."""
    from course_lib.ranks.start.preloaded import begin, preload

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent()
    channel = Channel.from_fd(int(sys.argv[1]))
    jobs: queue.SimpleQueue[tuple[dict[str, Any], list[int]]] = queue.SimpleQueue()
    listener = threading.Thread(
        target=_listen, args=(channel, jobs), daemon=True, name="course end"
    )
    listener.start()
    preload()  # all of it, also when a job waits: an import must not fall into the job's own time
    channel.send({"did": "warm"})
    message, fds = jobs.get()
    if LINUX:
        listener.join()
    channel.send({"did": "begin"})
    begin(message, fds)


def _listen(channel: Channel, jobs: queue.SimpleQueue[tuple[dict[str, Any], list[int]]]) -> None:
    """Takes the job; after it comes nothing but the end of the server, and so of this process.

    Linux ends this process by itself (`die_with_parent`). A thread that listened on would be older
    than the wall around an answer, which does not hold for it: an answer could have it open files.
    """
    with suppress(ChannelClosed, OSError):
        while True:
            message, _, fds = channel.receive()
            jobs.put((message, fds))
            if LINUX:
                return
    os.killpg(0, signal.SIGKILL)
