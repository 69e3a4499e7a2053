"""One run of a learner's code on N real ranks, watched from a process that it cannot reach."""

from __future__ import annotations

import os
import secrets
import selectors
import socket
import time
from contextlib import ExitStack, suppress
from typing import Any

from course_lib.comm.matching import Deadlock, Difference
from course_lib.grade.faults import Fault
from course_lib.grade.judge import verdict
from course_lib.grade.judge.clock import Clock
from course_lib.grade.judge.disk import bytes_below
from course_lib.grade.judge.inbox import Inbox
from course_lib.grade.judge.looks import Looks
from course_lib.grade.judge.switch import JudgesSwitch
from course_lib.grade.judge.terms import STARVED, Limits, Subject
from course_lib.grade.judge.view import RankView
from course_lib.grade.rank import payload
from course_lib.ranks.pool.outcome import ending
from course_lib.ranks.start.channel import Channel, ChannelClosed
from course_lib.ranks.start.forkserver import MEET_WITHIN, ForkServer

RANK = "course_lib.grade.rank.subject:main"  # what runs as a rank
LOOK = 0.25  # seconds between two looks
ANSWER = 2.0  # seconds that ranks that are stuck get to say where
HALTED = 3  # looks in a row at which a rank is stopped: a whole machine may pause for a moment
GRACE = 0.25  # seconds that the other ranks get to say what happened to them


class RankLost(RuntimeError):
    """A rank could not be started."""


class Trial:
    """A run under way.

    Args:
        server: forks the ranks.
        subject: whose code.
        limits: what it may use.
        folder: where the ranks work, on the disk.
        together: whether they share it; else no file can tell a rank what was not sent to it.

    Attributes:
        ranks: what is known of each rank.
        switch: carries their calls; None if torch does.
    """

    def __init__(
        self, server: ForkServer, subject: Subject, limits: Limits, folder: str, together: bool
    ) -> None:
        self._server, self._subject, self._limits = server, subject, limits
        self._folder, self._together = folder, together
        self.ranks: list[RankView] = []
        self._selector = selectors.DefaultSelector()
        self.switch: JudgesSwitch | None = None
        self._looks = Looks()
        self._halted = 0  # looks in a row at which a rank was stopped

    def run(
        self, drive: str, modules: list[dict[str, Any]], inputs: list[dict[str, Any]]
    ) -> Fault | None:
        """Runs the function `drive` with `inputs`, one dict for each rank.

        Args:
            drive: the driver's name.
            modules: what `driver.cut` has cut out of the suite for it.
            inputs: its arguments.

        Returns:
            What went wrong; None if every rank has answered. All its processes have ended.
        """
        with ExitStack() as stack:
            stack.callback(self._end)
            self._start({"drive": drive, "modules": modules}, inputs)
            return self._watch()

    # --- start and end ---------------------------------------------------------------------------
    def _start(self, job: dict[str, Any], inputs: list[dict[str, Any]]) -> None:
        self._selector.register(self._server.fileno(), selectors.EVENT_READ)
        if self._subject.network == "switch":
            self.switch = JudgesSwitch(len(inputs), self._selector)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            for rank in range(len(inputs)):
                view = self._fork(rank, len(inputs), listener)
                data, raw = payload.pack(inputs[rank])
                own = {"inputs": data, "folder": self._place()}
                sent = {**job, **own, "source": self._subject.source}
                with suppress(ChannelClosed):
                    view.channel.send(sent, raw)
                self.ranks.append(view)

    def _fork(self, rank: int, world: int, listener: socket.socket) -> RankView:
        subject, limits = self._subject, self._limits
        args = {
            "rank": rank,
            "world": world,
            "port": listener.getsockname()[1],
            "path": subject.path,
            "root": subject.root,
            "name": subject.name,
            "defines": subject.defines,
            "allowance": subject.allowance,
            "protected": subject.protected,
            "hidden": subject.hidden,
            "processes": subject.processes,
            "memory": limits.memory,
            "cpu": limits.cpu,
            "longest": limits.longest,
            "network": subject.network,
        }
        mine, theirs = Channel.pair()
        read, write = os.pipe()
        os.set_blocking(read, False)
        network: tuple[int, ...] = (listener.fileno(),) if rank == 0 else ()
        if self.switch is not None:
            network = self.switch.files(rank)
        fds = [theirs.fileno(), write, *network]
        try:
            child = self._server.fork(RANK, args, tuple(fds), stdout=1)
        finally:
            theirs.close()
            os.close(write)
            if self.switch is not None:
                self.switch.close_files(rank)
        view = RankView(rank, child, mine, Inbox(mine), read)
        for fd in (mine.fileno(), read):
            self._selector.register(fd, selectors.EVENT_READ, view)
        return view

    def _place(self) -> str:
        """A rank's folder. Nobody keeps a rank from asking how large a file is, if it has the name.

        So what is not shared has a name that only its owner is told, by a channel of its own.
        """
        return self._folder if self._together else f"{self._folder}/{secrets.token_hex(8)}"

    def _end(self) -> None:
        """Ends every rank, and whatever it started."""
        self._tell({"ask": "end"})
        patience = time.monotonic() + 0.3
        for view in self.ranks:
            if view.child.wait(max(0.0, patience - time.monotonic())) is None:
                view.child.kill()
        for view in self.ranks:
            view.child.wait(5.0)
            view.take()
            view.inbox.close()
            view.channel.close()
            os.close(view.pipe)
        self._selector.close()
        if self.switch is not None:
            self.switch.close()

    def _tell(self, message: dict[str, Any]) -> None:
        for view in self.ranks:
            with suppress(ChannelClosed):
                view.channel.send(message)

    # --- watching --------------------------------------------------------------------------------
    def _watch(self) -> Fault | None:
        """Waits until all have answered, or until one thing has gone wrong."""
        begin = asked = time.monotonic()
        clock: Clock | None = None  # goes once the learner's code does
        while True:
            if self.switch is None:
                ready = self._selector.select(LOOK / 2)
            else:
                ready = self.switch.serve(self.ranks, LOOK / 2)
            if any(key.data is None for key, _ in ready):
                self._server.collect()
            self._take()
            if clock is None and all(view.ready for view in self.ranks):
                clock = Clock(self.ranks)
                self._tell({"ask": "go"})
            if all(view.state == "finished" for view in self.ranks):
                if self.switch is not None:
                    self.switch.hear_out(self.ranks)
                return verdict.of_finished(self.ranks)
            if any(view.state in ("raised", "killed") for view in self.ranks):
                self._last_words()
                self._check_start()
                return verdict.of_ended(self.ranks, self._subject.path)
            if self.switch is not None and self.switch.found is not None:
                return self._stuck(self.switch.found)
            now = time.monotonic()
            if now - asked >= LOOK:
                asked = now
                if clock is None and now - begin > MEET_WITHIN:
                    raise RankLost(f"not all ranks have started within {MEET_WITHIN:g} s")
                fault = self._judge(now, clock) if clock is not None else None
                if fault is not None:
                    return fault
                self._tell({"ask": "where"})

    def _stuck(self, found: Deadlock | Difference) -> Fault:
        """The fault of ranks that can never go on, once they have said where they are."""
        asked, running = time.monotonic(), [v for v in self.ranks if v.state == "running"]
        self._tell({"ask": "where"})
        while time.monotonic() < asked + ANSWER and any(
            view.state == "running" and view.look.get("at", 0.0) < asked for view in running
        ):
            self._selector.select(0.02)
            self._take()
        reports = {view.index: view.report() for view in self.ranks}
        return verdict.of_stuck(found, reports)

    def _take(self) -> None:
        for view in self.ranks:
            closed = view.inbox.closed
            view.take()
            if view.inbox.closed and not closed:
                self._selector.unregister(view.channel.fileno())

    def _last_words(self) -> None:
        """Lets the other ranks fail as well, so that a fault of all is not called one of one."""
        clock = Clock([view for view in self.ranks if view.state == "running"])
        while (
            clock.had < GRACE
            and clock.passed < STARVED * 4 * GRACE
            and any(view.state == "running" for view in self.ranks)
        ):
            self._selector.select(0.02)
            self._take()
            clock.look()
        for view in self.ranks:
            if view.state == "killed":
                view.child.wait(10.0)  # without it there is nothing to say how it ended

    def _check_start(self) -> None:
        """A rank that ends before it has come to the learner's code is the grader's fault."""
        for view in self.ranks:
            if view.state == "killed" and not view.ready:
                text = view.tail.decode(errors="replace")[-2000:]
                why = f"{ending(view.child.status)} {text}".strip()
                raise RankLost(f"rank {view.index} did not start: it {why}")

    def _judge(self, now: float, clock: Clock) -> Fault | None:
        """Whether a limit is passed, or nothing moves any more."""
        clock.look()
        for view in self.ranks:
            if view.printed > self._limits.output:
                return verdict.of_flood(view, self._limits.output)
            if (threads := view.threads()) > self._limits.threads:
                return verdict.of_threads(view, threads, self._limits.threads)
        halted = [view for view in self.ranks if view.halted()]
        self._halted = self._halted + 1 if halted else 0
        if self._halted >= HALTED:
            return verdict.of_stopped(halted)
        written = max(
            bytes_below(self._folder, self._limits.disk), sum(view.written() for view in self.ranks)
        )
        if written > self._limits.disk:
            return verdict.of_disk(self.ranks, written)
        late = clock.had > self._limits.wall or clock.passed > self._limits.longest
        busy = [
            view
            for view in self.ranks
            if view.used() > self._limits.cpu or (late and view.worked > clock.passed / 2)
        ]
        for view in self.ranks:
            asked, present = view.grown()
            # Where fresh pages are slow, a clock runs out before the memory does.
            over = late or view in busy
            most = self._limits.memory // (16 if over else 1)  # more than all: no kernel refuses it
            if asked > most or present > self._limits.memory // 2:
                return verdict.of_memory(view, max(asked, present))
        if busy:
            return verdict.of_cpu(busy, self._limits.cpu, clock.passed)
        reports = {view.index: view.report() for view in self.ranks}
        if late:
            return verdict.of_wall(reports, self._limits.wall)
        if self.switch is None and self._looks.show_standstill(now, reports):
            return verdict.of_deadlock(reports)
        return None
