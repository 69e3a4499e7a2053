"""A preloaded process that forks ranks: torch is imported once, and a new rank costs 30 ms.

Notebook: 00 Ranks and the ledger uses it for every cell.
Source: the zygote of Android and the forkserver of Python's multiprocessing, which this replaces
since that one cannot hand out sockets, tell how a child ended, or clean up after a dead parent.
Costs: one process of about 250 MB, whose pages the ranks share; a fork of it about 10 ms.
The production version is torchrun, which starts a fresh interpreter for each rank (seconds).

The server has no threads and no CUDA context, so that a fork of it is safe. It ends, with all it
forked, when its owner does: also when the owner was killed.
"""

from __future__ import annotations

import importlib
import os
import select
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from course_lib.ranks.channel import Channel, ChannelClosed
from course_lib.ranks.descend import die_with_parent, kill_family, strays, subreaper

# One thread a rank: two ranks on one core each lose several times more by fighting over it.
THREADS = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}

START = "from course_lib.ranks.forkserver import main; main()"


class ServerDied(RuntimeError):
    """The preloaded process is gone; start another."""


class Child:
    """A process that the server forked for a client.

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
        channel: a channel to a server that already runs (see `client_of_parent`); None starts one.
    """

    def __init__(self, channel: Channel | None = None) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self.ready = channel is not None
        self._children: dict[int, Child] = {}
        self._forked: list[int] = []
        if channel is None:
            channel, theirs = Channel.pair()
            root = Path(__file__).resolve().parents[2]
            path = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH", "")]))
            self._process = subprocess.Popen(
                [sys.executable, "-c", START, str(theirs.fileno())],
                pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                start_new_session=True, env={**os.environ, **THREADS, "PYTHONPATH": path},
            )  # fmt: skip
            theirs.close()
        self._channel = channel

    def wait_ready(self, timeout: float | None = None) -> bool:
        """Waits until the server has imported what it preloads; False if not in time."""
        self.collect(timeout, until=lambda: self.ready)
        return self.ready

    def fork(
        self, target: str, args: dict[str, Any], fds: tuple[int, ...] = (), **options: Any
    ) -> Child:
        """Forks the server, and calls a function in the child.

        Args:
            target: `module:function`; it is called as function(args, fds) and its process then
                ends with code 0.
            args: JSON-ready data for it.
            fds: open files for it, in this order; the caller keeps its own copies.
            options: `env` (dict), `stdout` and `stdin` (indices into `fds`), `serve` (index into
                `fds` of a channel on which the *server* takes requests from then on, so that the
                child can fork as well).

        Returns:
            The child, running.

        Raises:
            ServerDied: the server is gone.
        """
        count = len(self._forked)
        self._send({"do": "fork", "target": target, "args": args, **options}, fds)
        self.collect(None, until=lambda: len(self._forked) > count)
        return self._children[self._forked[-1]]

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
        deadline = None if timeout is None else time.monotonic() + timeout
        while until is None or not until():
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            try:
                message, _, _ = self._channel.receive(left or 1e-6 if left is not None else None)
            except TimeoutError:
                return
            except (BlockingIOError, InterruptedError):
                return
            except (ChannelClosed, OSError):
                for child in self._children.values():
                    child.status = -signal.SIGKILL if child.status is None else child.status
                raise ServerDied("the preloaded process has ended") from None
            self._take(message)

    def _take(self, message: dict[str, Any]) -> None:
        if message["did"] == "ready":
            self.ready = True
        elif message["did"] == "fork":
            self._children[message["pid"]] = Child(message["pid"], self)
            self._forked.append(message["pid"])
        elif message["did"] == "exit":
            self._children[message["pid"]].status = message["status"]

    def _send(self, message: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
        try:
            self._channel.send(message, fds=fds)
        except (ChannelClosed, OSError):
            raise ServerDied("the preloaded process has ended") from None

    def close(self) -> None:
        """Ends the server, if this client started it, and every child that it forked for it."""
        self._channel.close()
        if self._process is not None:
            try:
                self._process.wait(3)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    @property
    def pid(self) -> int:
        """Process id of the server; 0 for a client that did not start it."""
        return self._process.pid if self._process else 0

    def __enter__(self) -> ForkServer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


# --- the server's side ---------------------------------------------------------------------------
class _Server:
    """Forks on request; tells the client that asked how its child ended."""

    def __init__(self, owner: Channel) -> None:
        self.owner = owner
        self.clients = [owner]
        self.children: dict[int, Channel] = {}
        self.parent = os.getppid()

    def run(self, wakeup: int) -> None:
        """Serves until the owner is gone."""
        self.owner.send({"did": "ready"})
        while self.owner in self.clients and os.getppid() == self.parent:
            sources: list[Any] = [wakeup, *self.clients]
            readable, _, _ = select.select(sources, [], [], 1.0)
            for source in readable:
                if source is wakeup:
                    os.read(wakeup, 4096)
                else:
                    self.serve(source)
            self.reap()
        for pid in list(self.children):
            kill_family(pid)
        kill_family(0)

    def serve(self, client: Channel) -> None:
        """Carries out one request of a client, or forgets one that is gone."""
        try:
            message, _, fds = client.receive()
        except (ChannelClosed, OSError):
            self.drop(client)
            return
        if message["do"] == "fork":
            self.fork(client, message, fds)
        elif message["pid"] in self.children:
            if message["signal"] == signal.SIGKILL:
                kill_family(message["pid"])
            else:
                os.kill(message["pid"], message["signal"])

    def drop(self, client: Channel) -> None:
        """A client is gone: so is what was forked for it."""
        self.clients.remove(client)
        client.close()
        for pid, asker in list(self.children.items()):
            if asker is client:
                kill_family(pid)

    def fork(self, client: Channel, message: dict[str, Any], fds: list[int]) -> None:
        """Forks a child for `client`."""
        serve = message.get("serve")
        if serve is not None:
            self.clients.append(Channel.from_fd(fds.pop(serve)))
        pid = os.fork()
        if pid == 0:
            for channel in self.clients:
                channel.close()
            _child(message, fds)
        for fd in fds:
            os.close(fd)
        self.children[pid] = client
        self.tell(client, {"did": "fork", "pid": pid})

    def reap(self) -> None:
        """Collects children that have ended, and kills what they left behind."""
        ended = False
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            ended = True
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
            client = self.children.pop(pid, None)
            if client is not None:
                code = os.waitstatus_to_exitcode(status)
                self.tell(client, {"did": "exit", "pid": pid, "status": code})
        if ended:
            for pid in strays(set(self.children)):
                kill_family(pid)

    def tell(self, client: Channel, message: dict[str, Any]) -> None:
        """Sends a message to a client, unless it is gone."""
        if client in self.clients:
            with suppress(ChannelClosed, OSError):
                client.send(message)


def _child(message: dict[str, Any], fds: list[int]) -> None:
    """What the forked process does; never returns."""
    code = 1
    try:
        os.setsid()
        die_with_parent()
        for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        os.environ.update(message.get("env", {}))
        if "stdout" in message:
            os.dup2(fds[message["stdout"]], 1)
            os.dup2(fds[message["stdout"]], 2)
        module, _, name = message["target"].partition(":")
        getattr(importlib.import_module(module), name)(message["args"], fds)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:  # a forked copy of the server must never run on into its loop
        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


@contextmanager
def _wakeup_on_child() -> Iterator[int]:
    """A file number that becomes readable when a child has ended."""
    read, write = os.pipe()
    for fd in (read, write):
        os.set_blocking(fd, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    yield read


def preload() -> None:
    """Imports what every rank needs; the slow part of starting one."""
    import torch
    import torch._dynamo  # noqa: F401  the first optimizer step imports it: seconds, in every rank
    import torch.distributed

    import course_lib.comm
    import course_lib.ranks.worker  # noqa: F401

    torch.set_num_threads(1)


def main() -> None:
    """Runs a server over the socket whose file number is the first argument."""
    owner = Channel.from_fd(int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the client to handle
    subreaper()
    preload()
    with _wakeup_on_child() as wakeup, suppress(ChannelClosed, OSError):
        _Server(owner).run(wakeup)
    os._exit(0)  # nothing to tidy up, and torch's own tidying takes a second
