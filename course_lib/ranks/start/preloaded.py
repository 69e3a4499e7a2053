"""The preloaded process itself: imports torch once, and forks a copy of itself on request.

It must stay forkable: no threads, no CUDA context, no autograd run, and nothing kept open for long.
Where no process that has torch may be forked, it imports nothing and deals out `Spares` instead.
"""

from __future__ import annotations

import gc
import importlib
import os
import select
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

from course_lib.ranks.start.channel import Channel, ChannelClosed
from course_lib.ranks.start.spares import Spare, Spares
from course_lib.ranks.system.descend import die_with_parent, kill_family, strays, subreaper
from course_lib.ranks.system.pages import use_huge_pages
from course_lib.ranks.system.processes import LINUX
from course_lib.ranks.system.scratch import sweep
from course_lib.ranks.system.semaphores import name_semaphores, remove_semaphores

LAST_SECONDS = 2.0  # for a server to end what it has started; its owner waits a little longer


class Server:
    """Starts children on request; tells the client that asked how its child ended.

    Args:
        owner: the first client; the server ends with it.
        spares: where children come from; None forks them.
    """

    def __init__(self, owner: Channel, spares: Spares | None) -> None:
        self.owner, self.spares = owner, spares
        self.clients = [owner]
        self.children: dict[int, Channel] = {}
        self.served: dict[int, Channel] = {}  # children that may fork as well
        self.parent = os.getppid()
        self.said_ready = False

    def run(self, wakeup: int) -> None:
        """Serves until the owner is gone."""
        if self.spares is None:
            self.owner.send({"did": "ready", "pid": os.getpid()})
        while self.owner in self.clients and os.getppid() == self.parent:
            speakers = self.tend(self.spares) if self.spares is not None else []
            sources: list[Any] = [wakeup, *self.clients, *speakers]
            readable, _, _ = select.select(sources, [], [], 1.0)
            for source in readable:
                if source is wakeup:
                    os.read(wakeup, 4096)
                elif isinstance(source, Spare):
                    source.hear()
                else:
                    self.serve(source)
            self.reap()
        own = self.own()
        for pid in own:
            kill_family(pid)
        kill_family(0)
        remove_semaphores(own)

    def tend(self, spares: Spares) -> list[Spare]:
        """Keeps the stock full and the owner informed; returns those that may say something."""
        if spares.ready and not self.said_ready:
            self.said_ready = True
            self.owner.send({"did": "ready", "pid": os.getpid()})
        if complaint := spares.complaint():
            self.owner.send({"did": "wait", "text": complaint})
        spares.refill()
        return spares.speakers()

    def own(self) -> set[int]:
        """Process ids of everything that was started here and is not reaped."""
        return {*self.children, *(self.spares.pids() if self.spares is not None else ())}

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
        """Starts a child for `client`."""
        serve = message.get("serve")
        served = Channel.from_fd(fds.pop(serve)) if serve is not None else None
        if served is not None:
            self.clients.append(served)
        pid = self.forked(message, fds) if self.spares is None else self.spares.give(message, fds)
        self.children[pid] = client
        if served is not None:
            self.served[pid] = served
        self.tell(client, {"did": "fork", "pid": pid, "number": message["number"]})

    def forked(self, message: dict[str, Any], fds: list[int]) -> int:
        """Forks this process; the process id of the child."""
        for module in message.get("ahead", [message["target"].partition(":")[0]]):
            load(module)
        pid = os.fork()
        if pid == 0:
            for channel in self.clients:
                channel.close()
            die_with_parent()
            begin(message, fds)
        for fd in fds:
            os.close(fd)
        return pid

    def reap(self) -> None:
        """Collects children that have ended, and kills what they left behind."""
        ended = []
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            ended.append(pid)
            if self.spares is not None:
                self.spares.ended(pid)
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
            client = self.children.pop(pid, None)
            mine = self.served.pop(pid, None)
            if mine in self.clients:  # whoever hears of its end finds nothing of it at work
                self.drop(mine)
            if client is not None:
                code = os.waitstatus_to_exitcode(status)
                self.tell(client, {"did": "exit", "pid": pid, "status": code})
        if ended:
            for pid in strays(self.own(), ended):
                kill_family(pid)
            remove_semaphores(ended)

    def tell(self, client: Channel, message: dict[str, Any]) -> None:
        """Sends a message to a client, unless it is gone."""
        if client in self.clients:
            with suppress(ChannelClosed, OSError):
                client.send(message)


def begin(message: dict[str, Any], fds: list[int]) -> NoReturn:
    """What a child does: it calls the function that it was asked for, and ends."""
    code = 1
    try:
        os.setsid()
        name_semaphores()
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


def again(_: dict[str, Any], fds: list[int]) -> None:
    """What a child does that is to be a server itself, for the client at the other end of `fds[0]`.

    Whatever its children do to it ends with it: the server that forked it goes on forking others.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    subreaper()
    _serve(Channel.from_fd(fds[0]), None)


def _serve(owner: Channel, spares: Spares | None) -> None:
    with _wakeup_on_child() as wakeup, suppress(ChannelClosed, OSError):
        Server(owner, spares).run(wakeup)


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
    import course_lib.ranks.rank_process.worker  # noqa: F401

    # By name: this room knows nothing of what lessons import, a sixth of a second in every rank.
    importlib.import_module("course_lib.train")
    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()  # a rank's collector would touch, and so copy, every page of what is shared


def load(module: str) -> None:
    """Imports a module before the first fork that needs it, for all that follow.

    An import that fails is left to the child, whose output says why.
    """
    if module not in sys.modules:
        with suppress(Exception):
            importlib.import_module(module)
            gc.freeze()


def _leave_a_guard(owner: Channel, parent: int) -> None:
    """Forks, and returns in the child: the parent stays as its guard, and ends as the child does.

    If the server is killed, what its ranks had started in sessions of their own falls to the guard,
    the next subreaper above. It ends them before it ends itself; only then does the owner hear
    that its channel is closed. If the guard is killed, the server notices by its parent.
    """
    subreaper()
    with _wakeup_on_child() as wakeup:
        server = os.fork()
        if server == 0:
            os.setsid()
            signal.signal(signal.SIGHUP, lambda *_: None)  # it only has to wake the server up
            die_with_parent(signal.SIGHUP)
            return
        looks = select.poll()
        looks.register(wakeup, select.POLLIN)
        looks.register(owner, 0)  # only its closing
        patience: float | None = None
        while not (ended := os.waitpid(server, os.WNOHANG))[0]:
            if any(fd != wakeup for fd, _ in looks.poll(patience)):
                looks.unregister(owner)
                patience = LAST_SECONDS * 1000
            elif patience is not None:
                os.kill(server, signal.SIGKILL)  # it was stopped, most likely
            with suppress(BlockingIOError):
                os.read(wakeup, 4096)
    kill_family(0)
    if patience is not None:  # the owner is gone; the server may have been killed in its imports
        sweep(parent)
    code = os.waitstatus_to_exitcode(ended[1])
    if code < 0:
        with suppress(OSError):  # SIGKILL has no handler
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(max(0, code))


def main() -> None:
    """Runs a server: arguments are the file number of its socket, and how children start."""
    owner, parent = Channel.from_fd(int(sys.argv[1])), os.getppid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the client to handle
    if LINUX:
        _leave_a_guard(owner, parent)
    subreaper()
    forks = sys.argv[2] == "fork"
    if forks:
        preload()
        use_huge_pages()
    _serve(owner, None if forks else Spares())
    sweep(parent)  # an owner that was killed has left its folders
    os._exit(0)  # nothing to tidy up, and torch's own tidying takes a second
