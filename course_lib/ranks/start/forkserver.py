"""A preloaded process that starts ranks: torch is imported ahead, and a new rank costs 30 ms.

The server has no threads and no CUDA context, so that a fork of it is safe. It ends, with all it
forked, when its owner does: also when the owner was killed. On macOS a fork is never safe once
torch is there; the process then keeps no torch but a stock of `spares`, and hands these out.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import Any

from course_lib.ranks.pool.outcome import ending
from course_lib.ranks.start.channel import Channel, ChannelClosed
from course_lib.ranks.start.launch import launch, start_method
from course_lib.ranks.start.spares import PATIENCE
from course_lib.ranks.system.interrupts import held
from course_lib.trace import Refusal

AGAIN = "course_lib.ranks.start.preloaded:again"  # what a child does that is a server itself
TURN = 0.2  # seconds between two looks whether another thread has taken one's message
MEET_WITHIN = 300.0  # seconds that ranks get to meet at first: each may have to import torch


class ServerDied(RuntimeError):
    """The preloaded process is gone; start another."""


class Child:
    """A process that the server started for a client.

    Attributes:
        pid: its process id, which is also its process group and session.
        status: None while it runs; then the exit code, or minus the signal that ended it.
    """

    def __init__(self, pid: int, server: ForkServer) -> None:
        self.pid = pid
        self.status: int | None = None
        self._server = server

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Sends a signal to the process; SIGKILL goes to everything it started as well."""
        self._server.kill(self, number)

    def wait(self, timeout: float | None = None) -> int | None:
        """Waits until the process has ended and returns its status; None if it has not in time."""
        self._server.collect(timeout, until=lambda: self.status is not None)
        return self.status


class ForkServer:
    """The client's side: starts a preloaded process and has it fork children.

    Starting returns at once; the first `fork` waits until torch has been imported there.

    Args:
        channel: a channel to a server that already runs; None starts one.
        child: the process of that server, which is to end with this client; None if it goes on.

    Attributes:
        ready: whether it has imported what it preloads.

    Raises:
        Refusal: COURSE_START names no way to start processes, or this process's working folder
            has been deleted.
    """

    def __init__(self, channel: Channel | None = None, child: Child | None = None) -> None:
        self._asked = 0
        self._turn = threading.Lock()  # whoever has it reads or writes the channel
        self._child = child
        self._begin(channel)

    def _begin(self, channel: Channel | None) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self.ready, self._pid = channel is not None, 0
        self._children: dict[int, Child] = {}
        self._forked: dict[int, Child] = {}
        self._unwanted: set[int] = set()
        if channel is None:
            channel, theirs = Channel.pair()
            try:
                self._process = launch(theirs.fileno())
            finally:
                theirs.close()
        self._channel = channel

    def revive(self) -> None:
        """If it has ended, starts another preloaded process in its place, for all who share it.

        Raises:
            Refusal: as for a new one.
        """
        with held():
            try:
                self.collect()
            except ServerDied:
                self.close()
                self._begin(None)

    def twin(self, within: float | None = None) -> ForkServer:
        """Another server that has imported all that this one has: a fork of it, where one may fork.

        Args:
            within: seconds in which this server must have answered; None waits forever.

        Returns:
            The twin, which ends when it is closed, or with this server.

        Raises:
            ServerDied: this server is gone, or has not answered; the next call starts another.
        """
        if start_method() != "fork":
            return ForkServer()
        self.revive()
        self.wait_ready()
        mine, theirs = Channel.pair()
        try:
            child = self.fork(AGAIN, {}, (theirs.fileno(),), within=within)
        except ServerDied:
            mine.close()
            self.close()
            raise
        finally:
            theirs.close()
        return ForkServer(mine, child)

    @property
    def pid(self) -> int:
        """Its process id, for which it waits until the server is ready.

        Raises:
            Refusal: it was started by another process. A 0 would mean this process and its group.
            ServerDied: the server is gone.
        """
        self.wait_ready()
        if not self._pid:
            raise Refusal("the process id of a server", "one of another process", "only it knows")
        return self._pid

    def wait_ready(self, timeout: float | None = None) -> bool:
        """Waits until the server has imported what it preloads; False if not in time."""
        self.collect(timeout, until=lambda: self.ready)
        return self.ready

    def fork(
        self,
        target: str,
        args: dict[str, Any],
        fds: tuple[int, ...] = (),
        *,
        within: float | None = None,
        **options: Any,
    ) -> Child:
        """Forks the server, or takes one of its spares, and calls a function in the child.

        Args:
            target: `module:function`; it is called as function(args, fds) and its process then
                ends with code 0.
            args: JSON-ready data for it.
            fds: open files for it, in this order; the caller keeps its own copies.
            within: seconds in which it must have done so; None waits forever.
            options: `ahead` (modules that the server imports first, so that all later children have
                them too; left out, the target's), `env` (dict), `stdout` (index into `fds`),
                `serve` (index into `fds` of a channel on which the *server* takes requests from
                then on, so that the child can fork as well; the child does not get this one, so it
                should be the last).

        Returns:
            The child, running.

        Raises:
            ServerDied: the server is gone, or has not answered in time.
            KeyboardInterrupt: passed on; the child, if it still comes, is killed.
        """
        with held():
            with self._turn:
                self._asked += 1
                number = self._asked
            request = {"do": "fork", "target": target, "args": args, "number": number, **options}
            self._send(request, fds)
            try:
                self.collect(PATIENCE, until=lambda: number in self._forked)
                if number not in self._forked:
                    say("Waiting for the preloaded process to import torch.")
                self.collect(within, until=lambda: number in self._forked)
            except KeyboardInterrupt:
                self._unwanted.add(number)
                raise
            if number not in self._forked:
                self._unwanted.add(number)
                raise ServerDied(f"the preloaded process has not answered in {within:g} s")
            return self._forked.pop(number)

    def kill(self, child: Child, number: int = signal.SIGKILL) -> None:
        """Has the server signal a child, which it does only while the child is not reaped."""
        if child.status is None:
            with suppress(ServerDied):
                self._send({"do": "kill", "pid": child.pid, "signal": int(number)})

    def fileno(self) -> int:
        """The channel's file number: readable when a child has ended (see `collect`)."""
        return self._channel.fileno()

    def collect(self, timeout: float | None = 0.0, until: Any = None) -> None:
        """Takes in the server's messages: for `timeout` seconds, or until `until()` is true.

        Raises:
            ServerDied: the server is gone; its children have the status -9 then.
        """
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        with held():
            while until is None or not until():
                if self._took_one():
                    continue
                left = deadline - time.monotonic()
                if left <= 0:
                    return
                # Another thread may take the message that this one waits for.
                self._channel.wait(min(left, TURN))

    def _took_one(self) -> bool:
        """Takes in one message, if one has come whole.

        Raises:
            ServerDied: the server is gone.
        """
        with self._turn:
            try:
                self._take(self._channel.receive(0)[0])
            except TimeoutError:
                return False
            except (ChannelClosed, OSError):
                self._bury()
                raise self._died() from None
        return True

    def _bury(self) -> None:
        """The server is gone and its children with it: ends what they had started themselves."""
        for child in self._children.values():
            if child.status is None:
                child.status = -signal.SIGKILL
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(child.pid, signal.SIGKILL)

    def _take(self, message: dict[str, Any]) -> None:
        if message["did"] == "ready":
            self.ready, self._pid = True, message["pid"]
        elif message["did"] == "wait":
            say(message["text"])
        elif message["did"] == "fork":
            pid, number = message["pid"], message["number"]
            child = self._children[pid] = Child(pid, self)
            if number in self._unwanted:
                with suppress(ChannelClosed):
                    self._channel.send({"do": "kill", "pid": pid, "signal": int(signal.SIGKILL)})
            else:
                self._forked[number] = child
        elif message["did"] == "exit":
            self._children.pop(message["pid"]).status = message["status"]

    def _send(self, message: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
        try:
            with self._turn:
                self._channel.send(message, fds=fds)
        except (ChannelClosed, OSError):
            raise self._died() from None

    def _died(self) -> ServerDied:
        """The error that says how the server ended, as far as is known."""
        with suppress(subprocess.TimeoutExpired):
            if self._process is not None:
                return ServerDied(f"the preloaded process {ending(self._process.wait(1.0))}")
        return ServerDied("the preloaded process has ended")

    def close(self) -> None:
        """Ends the server, if it is this client's own, and every child that it forked for it."""
        with held():
            self._channel.close()
            if self._process is not None:
                try:
                    self._process.wait(3)
                except subprocess.TimeoutExpired:
                    self._process.kill()
                    self._process.wait()
            with suppress(ServerDied):
                if self._child is not None and self._child.wait(3) is None:
                    self._child.kill()
                    self._child.wait(3)

    def __enter__(self) -> ForkServer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def say(text: str) -> None:
    """Tells whoever waits, unless what comes out is to be compared."""
    if os.environ.get("COURSE_LIVE", "1") != "0":
        print(text, file=sys.stderr, flush=True)
