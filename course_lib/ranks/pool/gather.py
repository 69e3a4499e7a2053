"""The wait for a cell's end: takes what ranks print and answer, and looks whether they move."""

from __future__ import annotations

import os
import re
import selectors
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from course_lib.ranks.pool import autopsy
from course_lib.ranks.pool.outcome import Outcome, ending
from course_lib.ranks.pool.pack import load_object
from course_lib.ranks.pool.rank import RankEnd
from course_lib.ranks.pool.waiting import Waits
from course_lib.ranks.start.channel import ChannelClosed
from course_lib.ranks.start.forkserver import ForkServer, ServerDied
from course_lib.ranks.system.interrupts import interruptible
from course_lib.ranks.system.processes import PROCESSES
from course_lib.trace import FlightLog, find_disagreement, may_differ

LOOK = 0.5  # seconds between two looks at ranks that take long
HASTE = 0.1  # the same once a rank has failed
HOPE = 0.4  # seconds without a move after which the others of a failed rank are given up
STOPPED = 3.0  # seconds after which a rank that a signal stopped is given up, as in a deadlock
GRACE = 0.8  # seconds that ranks get to answer an interrupt, or to tell their last calls
MOST_OUTPUT = 64 << 20  # bytes kept of one rank's output in one cell
COMPARE = 5.0  # seconds that ranks get to tell the calls of a cell
CALL = ("call", "axis", "group", "seq", "peer", "shape", "dtype")  # of a report: in which call
BYTES = re.compile(rb"length <= op\.nbytes\. (\d+) vs (\d+)")  # gloo's words before it aborts
PIPE = 1 << 20  # bytes that a pipe can hold at most
READ = 1 << 16  # bytes read at a time


class Gathering:
    """One wait for the answers of some ranks: their output, their ends, and whether they move.

    Args:
        server: the preloaded process, which tells how ranks ended.
        ranks: all ranks, by index.
        outcome: is filled in.
        waiting: the ranks that are to answer.
        timeout: seconds for all of it; None for no limit.
        stall: seconds after which ranks that stand still are a deadlock; None for ranks that start:
            they stand still until all are there, and one that has ended never comes.
        watch: called now and then with the outcome so far.
    """

    def __init__(
        self,
        server: ForkServer,
        ranks: Mapping[int, RankEnd],
        outcome: Outcome,
        waiting: set[int],
        *,
        timeout: float | None,
        stall: float | None,
        watch: Callable[[Outcome], None] | None,
    ) -> None:
        self.server, self.ranks = server, ranks
        self.outcome, self.waiting = outcome, waiting
        self.watch, self.stall = watch, stall
        self.prints: dict[int, dict[str, Any]] = {}  # of the calls of each rank that has ended
        now = time.monotonic()
        self.deadline = now + timeout if timeout is not None else None
        self.next_look, self.next_watch = now + LOOK, now + LOOK / 2
        self.last_look, self.still = now, 0.0
        self.interrupted = False
        self.lost = ""  # how the preloaded process ended, if it did
        self.stopped = 0.0  # seconds for which a rank has been stopped
        self.seen: dict[int, dict[str, Any]] = {}
        self.waits = Waits()
        for index in waiting:
            outcome.reports[index] = {"state": "running"}
        for index in self.ranks:
            outcome.output.setdefault(index, bytearray())

    def until_done(self) -> None:
        """Returns when there is nothing more to wait for; sets the verdict if ranks are stuck."""
        with selectors.PollSelector() as selector:  # the one that needs no file number itself
            selector.register(self.server, selectors.EVENT_READ, (self.endings, -1))
            for index in self.waiting:
                rank = self.ranks[index]
                answer, drain = partial(self.answer, rank), partial(self.drain, rank)
                selector.register(rank.channel, selectors.EVENT_READ, (answer, index))
                selector.register(rank.output, selectors.EVENT_READ, (drain, index))
            while self.waiting and not self.outcome.verdict:
                pause = max(0.0, min(self.next_look, self.next_watch) - time.monotonic())
                with interruptible():
                    ready = selector.select(pause)
                for key, (take, index) in ((key, key.data) for key, _ in ready):
                    if index in (-1, *self.waiting):  # else it has answered since the selection
                        take()
                    if index not in (-1, *self.waiting):
                        selector.unregister(key.fileobj)
                self._now_and_then()
        if self.interrupted:
            return
        if not self.outcome.verdict and self._died():
            self.outcome.verdict = "died"
        if self.outcome.verdict:
            self._take_flights()

    def _died(self) -> bool:
        return any(report["state"] == "killed" for report in self.outcome.reports.values())

    def _now_and_then(self) -> None:
        now = time.monotonic()
        if self.watch is not None and now >= self.next_watch:
            self.watch(self.outcome)
            took = time.monotonic() - now
            self.next_watch = now + max(LOOK / 2, 10 * took)
        if now >= self.next_look and self.waiting:
            self.look()
            self.next_look = time.monotonic() + (HASTE if self._failed() else LOOK)
        if self.deadline is not None and now > self.deadline and self.waiting:
            self.look()
            self.outcome.verdict = "timeout"

    # --- what comes in ---------------------------------------------------------------------------
    def drain(self, rank: RankEnd) -> None:
        """Takes what the rank has printed so far: a pipe full, for it may print without end."""
        kept = self.outcome.output[rank.index]
        with suppress(BlockingIOError, OSError):
            for _ in range(PIPE // READ + 1):
                data = os.read(rank.output, READ)
                if not data:
                    break
                kept += data[: max(0, MOST_OUTPUT - len(kept))]

    def answer(self, rank: RankEnd) -> None:
        """Takes one message of a rank, if it has come whole."""
        try:
            message, raw, fds = rank.channel.receive(0)
        except TimeoutError:
            return
        except ChannelClosed:
            try:
                self.server.collect(1.0, until=lambda: rank.child.status is not None)
            except ServerDied as error:
                self.lost = f" with {error}"
            self._killed(rank)
            return
        if message["did"] == "aborts":
            self._last_words(rank.index, message)
            return
        if message["did"] == "display":
            self.outcome.show(rank.index, message["data"])
            return
        self.outcome.broken = self.outcome.broken or message.get("broken", "")
        report: dict[str, Any] = {"state": "finished", "made": message.get("seq", -1)}
        self.prints[rank.index] = message.get("prints", {})
        if message["did"] == "ready":
            self.outcome.device = message["device"]
        if message["did"] in ("raised", "interrupted"):
            report = {**message.pop("called"), **message}
            report["state"] = message["did"] if self.interrupted else "raised"
            report["error"] = f"{message['error']}: {message['text']}".splitlines()[0][:200]
            self.next_look = min(self.next_look, time.monotonic() + HASTE)  # do others wait for it?
        elif "pickle" in message:
            report |= self._unpacked(rank, message, raw, fds)
        self.outcome.take(rank.index, message)
        if "seq" in message:
            self.outcome.calls[rank.index] = message["seq"]
        self.outcome.reports[rank.index] = report
        self.waiting.discard(rank.index)

    def _unpacked(
        self, rank: RankEnd, message: dict[str, Any], raw: bytes, fds: list[int]
    ) -> dict[str, Any]:
        """Takes in a value; what it adds to the rank's report: nothing, or why it failed."""
        try:
            with interruptible():  # the program's own classes may take as long as they like
                self.outcome.values[rank.index] = load_object(message, raw, fds)
        except Exception as error:
            text = f"the value cannot be unpacked here: {type(error).__name__}: {error}"
            return {"state": "raised", "error": text, "trace": text}
        return {}

    def endings(self) -> None:
        """Takes news of ranks that ended."""
        try:
            self.server.collect()
        except ServerDied as error:
            self.lost = f" with {error}"
            for rank in self.ranks.values():
                rank.child.status = -signal.SIGKILL
        for index in list(self.waiting):
            if self.ranks[index].child.status is not None:
                self.answer(self.ranks[index])  # what it said before it ended
            if index in self.waiting and self.ranks[index].child.status is not None:
                self._killed(self.ranks[index])

    def _last_words(self, index: int, message: dict[str, Any]) -> None:
        """A library has aborted a rank: where it was, and its last calls."""
        self.seen[index] = {**message["where"], "state": "running"}  # its end is not told yet
        log = FlightLog.from_dict(message["flight"])
        log.state = "killed"
        self.outcome.flight_logs.append(log)

    def _killed(self, rank: RankEnd) -> None:
        self.drain(rank)
        with suppress(ChannelClosed, TimeoutError):
            while (message := rank.channel.receive(0)[0])["did"] != "aborts":
                pass
            self._last_words(rank.index, message)
        where = self.seen.get(rank.index, {})
        text = where.get("source")
        at = f" (last seen at line {where['line']}: {text})" if text else ""
        if b"gloo::EnforceNotMet" in (printed := self.outcome.output[rank.index]):
            at += autopsy.OTHER_SIZE
            if where.get("call") in autopsy.PAIRED and (sizes := BYTES.search(printed)):
                at += f" ({int(sizes[1])} bytes came for {int(sizes[2])})"
        called = {part: where[part] for part in CALL if part in where} if where.get("call") else {}
        error = ending(rank.child.status) + self.lost + at
        self.outcome.reports[rank.index] = {"state": "killed", "error": error, **called}
        self.waiting.discard(rank.index)
        self.next_look = min(self.next_look, time.monotonic() + HASTE)  # do others wait for it?

    # --- what does not come ----------------------------------------------------------------------
    def look(self) -> None:
        """Asks every rank that has not answered where it is; calls it a deadlock if none moves."""
        asked = time.monotonic()
        for index in self.waiting:
            self._ask(index, "where", asked)
        for index in self.waiting:
            if PROCESSES.is_stopped(self.ranks[index].child.pid):
                self.outcome.reports[index] = {**self.seen.get(index, {}), "state": "stopped"}
                continue
            with suppress(ChannelClosed, TimeoutError):
                told = self._told(index, asked, LOOK)
                self.outcome.reports[index] = {**told, "state": "running"}
        now, reports = time.monotonic(), dict(self.outcome.reports)
        self.waits.look(reports)
        self.outcome.waits = self.waits.line(now)
        self._judge(now, reports)

    def _judge(self, now: float, reports: dict[int, dict[str, Any]]) -> None:
        """Compares this look with the one before."""
        pause = min(LOOK, now - self.last_look)
        halted = any(report["state"] == "stopped" for report in reports.values())
        self.stopped = self.stopped + pause if halted else 0.0
        stands = autopsy.standstill(self.seen, reports, now - self.last_look)
        # Not more than LOOK for one look: the machine itself may have paused in between.
        self.still = self.still + pause if stands else 0.0
        self.seen, self.last_look = reports, now
        if halted and not self.interrupted and self.stopped > (self.stall or STOPPED):
            self.outcome.verdict = "stopped"
            return
        if self.stall is None and self._failed() and not self.interrupted:
            dead = any(report["state"] == "killed" for report in reports.values())
            self.outcome.verdict = "died" if dead else "raised"  # those that start wait for all
        if self.stall is None or halted:
            return
        patience = min(HOPE, self.stall) if self._failed() else self.stall
        if self.still > patience * 0.99:
            killed = any(report["state"] == "killed" for report in reports.values())
            self.outcome.verdict = "died" if killed else "deadlock"

    def _take_flights(self) -> None:
        """Asks every rank for its last calls, also those that have answered or failed."""
        asked = time.monotonic()
        for index in self.ranks:
            self._ask(index, "flight", asked)
        for index in self.ranks:
            with suppress(ChannelClosed, TimeoutError):
                log = FlightLog.from_dict(self._told(index, asked, GRACE))
                log.state = self.outcome.reports.get(index, {"state": "finished"})["state"]
                self.outcome.flight_logs.append(log)

    def compare(self) -> None:
        """Once all have ended well: whether they made the same calls, by what their ledgers say."""
        if not may_differ(self.prints.values()):
            return
        asked, calls = time.monotonic(), {}
        for index in self.prints:
            self._ask(index, "calls", asked)
        with suppress(ChannelClosed, TimeoutError):
            for index in self.prints:
                calls[index] = self._told(index, asked, COMPARE)["calls"]
        self.outcome.mismatch = find_disagreement(calls, self.prints)
        self.outcome.verdict = "mismatch" if self.outcome.mismatch else ""

    def _failed(self) -> bool:
        return any(r["state"] in ("raised", "killed") for r in self.outcome.reports.values())

    def _ask(self, index: int, what: str, asked: float) -> None:
        """Asks a rank; one that takes no more questions is not waited for."""
        rank = self.ranks[index]
        with suppress(ChannelClosed, TimeoutError):
            rank.questions.send({"do": what, "asked": asked, "request": rank.requests}, timeout=0)

    def _told(self, index: int, asked: float, within: float) -> dict[str, Any]:
        """A rank's answer to the question of that time; late answers to older ones are dropped."""
        while True:
            left = max(1e-3, asked + within - time.monotonic())
            found, _, _ = self.ranks[index].questions.receive(left)
            if found["asked"] == asked:
                return found

    def interrupt(self) -> None:
        """Passes an interrupt on; ranks that do not answer it are left as `running`."""
        self.interrupted = True
        with suppress(KeyboardInterrupt):  # a second one means: at once
            self.look()
            for index in self.waiting:
                self._ask(index, "interrupt", 0.0)
            self.stall, self.watch = None, None
            self.deadline = time.monotonic() + GRACE
            self.next_look = self.next_watch = time.monotonic() + GRACE
            seen = dict(self.outcome.reports)
            self.until_done()
            for index, report in self.outcome.reports.items():
                if report["state"] in ("running", "interrupted"):
                    self.outcome.reports[index] = {**seen[index], "state": report["state"]}
        self.outcome.verdict = "interrupted"
