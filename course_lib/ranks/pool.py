"""A pool of ranks that stays warm: sends them cells and functions, and never hangs with them.

Notebook: 00 Ranks and the ledger; every `%%ranks` cell.
Source: ipyparallel's engines, torchrun's agent; both wait for ever where this one looks closer.
Costs: two messages a rank for a cell, and a look at every rank twice a second while it takes long.
The production version is torchrun's elastic agent, which restarts the whole job when a rank ends.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import cloudpickle

from course_lib.ranks import autopsy
from course_lib.ranks.channel import Channel, ChannelClosed
from course_lib.ranks.forkserver import Child, ForkServer, ServerDied
from course_lib.ranks.pack import load_object, send_object
from course_lib.trace import Ledger, Timeline

LOOK = 0.5  # seconds between two looks at ranks that take long
GRACE = 1.0  # seconds that ranks get to answer an interrupt
MOST_OUTPUT = 64 << 20  # bytes kept of one rank's output in one cell
MOST_RANKS = 64
ANEW = "All ranks were started anew; their variables are gone"


class BadRequestError(ValueError):
    """Ranks were asked for that cannot be; the message is one sentence."""


class RanksError(RuntimeError):
    """A cell or a function that did not end well on every rank.

    Attributes:
        outcome: how it ended, rank by rank.
    """

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.story())
        self.outcome = outcome


@dataclass
class Outcome:
    """How one cell or call ended.

    Attributes:
        reports: rank to what became of it: `state` is `finished`, `raised`, `interrupted`,
            `killed`, or `running` if it had to be stopped; with `line`, `error`, `trace`, ...
        output: rank to the bytes it printed.
        displays: (rank, MIME bundle) in the order of arrival.
        ledgers: rank to its ledger of this cell, if it was asked for.
        values: rank to the value that came back.
        verdict: "" if all finished; else `raised`, `deadlock`, `timeout`, `died`, `interrupted`.
        restarted: why the ranks had to be started anew; "" if they go on.
    """

    reports: dict[int, dict[str, Any]] = field(default_factory=dict)
    output: dict[int, bytearray] = field(default_factory=dict)
    displays: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    ledgers: dict[int, Ledger] = field(default_factory=dict)
    values: dict[int, Any] = field(default_factory=dict)
    verdict: str = ""
    restarted: str = ""

    def timeline(self) -> Timeline:
        """The ledgers of all ranks of this cell."""
        return Timeline(self.ledgers.values())

    def story(self) -> str:
        """What went wrong, for people; "" if nothing did."""
        lines = self._headline()
        lines += [text for trace in self._traces() for text in trace]
        if self.restarted:
            lines.append(self.restarted)
        return "\n".join(lines)

    def _headline(self) -> list[str]:
        if self.verdict in ("deadlock", "timeout"):
            failed = any(report["state"] == "raised" for report in self.reports.values())
            head = "A rank failed" if failed else "Deadlock"
            head = "Time is up" if self.verdict == "timeout" else head
            stuck = any(report.get("talking") for report in self.reports.values())
            why = [autopsy.explain(self.reports)] if stuck else []
            return [f"{head}. {' '.join(why)}".rstrip(), *autopsy.table(self.reports)]
        if self.verdict == "died":
            dead = [r for r, rep in self.reports.items() if rep["state"] == "killed"]
            each = "; ".join(f"rank {r} {self.reports[r]['error']}" for r in dead)
            return [f"A rank ended: {each}.", *autopsy.table(self.reports)]
        if self.verdict == "interrupted":
            return ["Interrupted.", *autopsy.table(self.reports)]
        return []

    def _traces(self) -> list[list[str]]:
        """Each different traceback once, with the ranks that raised it."""
        same: dict[str, list[int]] = {}
        for rank, report in sorted(self.reports.items()):
            if report["state"] == "raised" and not autopsy.lost_peer(report):
                same.setdefault(report["trace"].strip(), []).append(rank)
        return [[f"{autopsy.names(ranks)}:", trace] for trace, ranks in same.items()]


class Pool:
    """N ranks, started from a preloaded process.

    Args:
        world_size: how many ranks.
        server: the preloaded process; the pool starts one of its own if None.
        device: `auto` (a GPU a rank where there are enough, else CPU), `cpu` or `cuda`.
        stall: seconds after which ranks that all wait for each other are called a deadlock.

    Attributes:
        device_name: where the ranks compute (`cpu`, `cuda:0`, ...), known once they have started.

    Raises:
        BadRequestError: no such world size or device.
    """

    def __init__(
        self,
        world_size: int,
        server: ForkServer | None = None,
        device: str | None = None,
        stall: float = 3.0,
    ) -> None:
        device = device or os.environ.get("COURSE_DEVICE", "auto")
        if not 1 <= world_size <= MOST_RANKS:
            raise BadRequestError(f"asked for {world_size} ranks; 1 to {MOST_RANKS} can run here")
        if device not in ("auto", "cpu", "cuda"):
            raise BadRequestError(f"asked for the device {device!r}; known are auto, cpu and cuda")
        self.world_size = world_size
        self.device = device
        self.stall = stall
        self.server = server or ForkServer()
        self._owns_server = server is None
        self.device_name = ""
        self._ranks: list[_Rank] = []
        self._seq: dict[int, int] = {}

    # --- life ------------------------------------------------------------------------------------
    @property
    def running(self) -> bool:
        """Whether the ranks are there and, as far as is known, well."""
        return bool(self._ranks)

    @property
    def pids(self) -> list[int]:
        """Process ids of the ranks."""
        return [rank.child.pid for rank in self._ranks]

    def start(self) -> None:
        """Starts the ranks, unless they run; returns when all have met.

        Raises:
            RanksError: they did not come up.
        """
        if self._ranks:
            return
        try:
            self.server.collect()
        except ServerDied:
            self.server.close()
            self.server = ForkServer()
            self._owns_server = True
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self._ranks = [
                _Rank.start(self, index, listener) for index in range(self.world_size)
            ]
        self._seq = {}
        outcome = self._gather(Outcome(), set(range(self.world_size)), timeout=120, judge=False)
        if outcome.verdict:
            self.stop()
            raise RanksError(outcome)

    def stop(self) -> None:
        """Ends the ranks; what they held is gone."""
        for rank in self._ranks:
            rank.end()
        self._ranks = []

    def close(self) -> None:
        """Ends the ranks, and the preloaded process if the pool started it."""
        self.stop()
        if self._owns_server:
            self.server.close()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # --- work ------------------------------------------------------------------------------------
    def run_cell(
        self,
        source: str,
        name: str = "Cell",
        only: Sequence[int] | None = None,
        timeout: float | None = None,
        ledger: bool = False,
        watch: Callable[[Outcome], None] | None = None,
    ) -> Outcome:
        """Runs source code on the ranks.

        Args:
            source: Python; its last expression is shown.
            name: stands as the file name in tracebacks; begins with `Cell`.
            only: the ranks to run it on; all if None.
            timeout: seconds after which it is stopped; None for no limit. A deadlock is ended
                without one.
            ledger: whether to bring back the ledgers.
            watch: called now and then with the outcome so far, to show output while it comes.

        Returns:
            How it ended; look at `verdict`.

        Raises:
            BadRequestError: `only` names ranks that do not exist.
        """
        ranks = set(range(self.world_size) if only is None else only)
        if not ranks or not ranks <= set(range(self.world_size)):
            raise BadRequestError(
                f"asked for ranks {sorted(ranks)}; there are 0 to {self.world_size - 1}"
            )
        message = {"do": "cell", "source": source, "name": name, "ledger": ledger}
        return self._work(message, ranks, timeout, watch=watch)

    def run(
        self, function: Callable[..., Any], *args: Any, timeout: float | None = None
    ) -> list[Any]:
        """Calls `function(group, *args)` on every rank; `group` is the group of all ranks.

        Returns:
            What it returned, in rank order.

        Raises:
            RanksError: it raised on a rank, or did not end.
        """
        with _by_value(function):
            outcome = self._work({"do": "call"}, set(range(self.world_size)), timeout,
                                 value=(function, args))  # fmt: skip
        if outcome.verdict:
            raise RanksError(outcome)
        return [outcome.values[rank] for rank in range(self.world_size)]

    def pull(self, name: str, rank: int | None = None) -> Any:
        """The value of a variable or expression in the ranks.

        Args:
            name: what to evaluate there.
            rank: one rank; None for all.

        Returns:
            A list in rank order, or the one rank's value. Tensors arrive on the CPU.

        Raises:
            RanksError: it does not exist there, or cannot be sent.
            BadRequestError: no such rank.
        """
        ranks = range(self.world_size) if rank is None else [rank]
        if rank is not None and not 0 <= rank < self.world_size:
            raise BadRequestError(f"asked for rank {rank}; there are 0 to {self.world_size - 1}")
        outcome = self._work({"do": "pull", "name": name}, set(ranks), None)
        if outcome.verdict:
            raise RanksError(outcome)
        return outcome.values[rank] if rank is not None else [outcome.values[r] for r in ranks]

    def push(self, **values: Any) -> None:
        """Sets variables in every rank.

        Raises:
            RanksError: a value cannot be unpacked there.
        """
        outcome = self._work({"do": "push"}, set(range(self.world_size)), None, value=values)
        if outcome.verdict:
            raise RanksError(outcome)

    def _work(
        self,
        message: dict[str, Any],
        ranks: set[int],
        timeout: float | None,
        value: Any = None,
        watch: Callable[[Outcome], None] | None = None,
    ) -> Outcome:
        outcome = Outcome()
        dead = self._dead()
        if dead:
            self.stop()
            outcome.restarted = f"{dead} since the last cell. {ANEW}."
        self.start()
        for index in sorted(ranks):
            with suppress(ChannelClosed):
                if value is None:
                    self._ranks[index].channel.send(message)
                else:
                    send_object(self._ranks[index].channel, message, value)
        outcome = self._gather(outcome, ranks, timeout, watch=watch)
        return self._after(outcome)

    def _dead(self) -> str:
        """Ranks that have ended since they were last used, in words; "" if none."""
        with suppress(ServerDied):
            self.server.collect()
        gone = [r for r in self._ranks if r.child.status is not None]
        return "; ".join(f"Rank {r.index} {ending(r.child.status)}" for r in gone)

    def _after(self, outcome: Outcome) -> Outcome:
        """Starts the ranks anew where they cannot go on together."""
        reports = outcome.reports
        if outcome.verdict in ("deadlock", "timeout", "died"):
            reason = "They could not go on"
        elif any(report["state"] == "running" for report in reports.values()):
            reason = "Some did not stop"
        elif len(set(self._seq.values())) > 1 and outcome.verdict:
            reason = "They are no longer at the same collective call"
        elif len(set(self._seq.values())) > 1:
            calls = ", ".join(f"rank {r}: {n}" for r, n in sorted(self._seq.items()))
            outcome.verdict = "out of step"
            reason = f"They made different numbers of collective calls on world ({calls})"
        else:
            return outcome
        self.stop()
        outcome.restarted = f"{reason}. {ANEW}."
        return outcome

    # --- the loop --------------------------------------------------------------------------------
    def _gather(
        self,
        outcome: Outcome,
        waiting: set[int],
        timeout: float | None,
        watch: Callable[[Outcome], None] | None = None,
        judge: bool = True,
    ) -> Outcome:
        """Waits until every rank in `waiting` has answered, died or was judged stuck."""
        gather = _Gathering(self, outcome, waiting, timeout, watch, judge)
        try:
            gather.until_done()
        except KeyboardInterrupt:
            gather.interrupt()
        for rank in self._ranks:
            gather.drain(rank)
        states = {report["state"] for report in outcome.reports.values()}
        if not outcome.verdict and "killed" in states:
            outcome.verdict = "died"
        if not outcome.verdict and "raised" in states:
            outcome.verdict = "raised"
        return outcome


class _Rank:
    """The pool's side of one rank."""

    def __init__(self, index: int, channel: Channel, questions: Channel, output: int) -> None:
        self.index, self.channel, self.questions, self.output = index, channel, questions, output
        self.child: Child

    @classmethod
    def start(cls, pool: Pool, index: int, listener: socket.socket) -> _Rank:
        """Has the preloaded process fork it."""
        channel, theirs = Channel.pair()
        questions, their_questions = Channel.pair()
        output, their_output = os.pipe()
        rank = cls(index, channel, questions, output)
        os.set_blocking(output, False)
        fds = [theirs.fileno(), their_questions.fileno(), their_output]
        if index == 0:
            fds.append(listener.fileno())
        args = {"rank": index, "world_size": pool.world_size, "device": pool.device,
                "port": listener.getsockname()[1]}  # fmt: skip
        try:
            rank.child = pool.server.fork(
                "course_lib.ranks.worker:main", args, tuple(fds), stdout=2
            )
        finally:
            theirs.close()
            their_questions.close()
            os.close(their_output)
        return rank

    def end(self) -> None:
        """Kills it and closes what belongs to it."""
        self.child.kill()
        self.channel.close()
        self.questions.close()
        os.close(self.output)


class _Gathering:
    """One wait for the answers of some ranks: their output, their ends, and whether they move."""

    def __init__(
        self,
        pool: Pool,
        outcome: Outcome,
        waiting: set[int],
        timeout: float | None,
        watch: Callable[[Outcome], None] | None,
        judge: bool,
    ) -> None:
        self.pool, self.outcome, self.waiting = pool, outcome, waiting
        self.ranks = {rank.index: rank for rank in pool._ranks}
        self.watch, self.judge = watch, judge
        now = time.monotonic()
        self.deadline = now + timeout if timeout is not None else None
        self.next_look, self.next_watch = now + LOOK, now + LOOK / 2
        self.last_look, self.still_since = now, now
        self.seen: dict[int, dict[str, Any]] = {}
        for index in waiting:
            outcome.reports[index] = {"state": "running"}
        for index in self.ranks:
            outcome.output.setdefault(index, bytearray())

    def until_done(self) -> None:
        """Returns when there is nothing more to wait for; sets the verdict if ranks are stuck."""
        with selectors.DefaultSelector() as selector:
            selector.register(self.pool.server, selectors.EVENT_READ, (self.endings, -1))
            for index in self.waiting:
                rank = self.ranks[index]
                answer, drain = partial(self.answer, rank), partial(self.drain, rank)
                selector.register(rank.channel, selectors.EVENT_READ, (answer, index))
                selector.register(rank.output, selectors.EVENT_READ, (drain, index))
            while self.waiting and not self.outcome.verdict:
                pause = max(0.0, min(self.next_look, self.next_watch) - time.monotonic())
                for key, _ in selector.select(pause):
                    take, index = key.data
                    take()
                    if index not in (-1, *self.waiting):
                        selector.unregister(key.fileobj)
                self._now_and_then()

    def _now_and_then(self) -> None:
        now = time.monotonic()
        if self.watch is not None and now >= self.next_watch:
            self.watch(self.outcome)
            self.next_watch = now + LOOK / 2
        if now >= self.next_look and self.waiting:
            self.look()
            self.next_look = time.monotonic() + LOOK
        if self.deadline is not None and now > self.deadline and self.waiting:
            self.look()
            self.outcome.verdict = "timeout"

    # --- what comes in ---------------------------------------------------------------------------
    def drain(self, rank: _Rank) -> None:
        """Takes what the rank has printed so far."""
        kept = self.outcome.output[rank.index]
        with suppress(BlockingIOError, OSError):
            while data := os.read(rank.output, 1 << 16):
                kept += data[: max(0, MOST_OUTPUT - len(kept))]

    def answer(self, rank: _Rank) -> None:
        """Takes one message of a rank."""
        try:
            message, raw, fds = rank.channel.receive()
        except ChannelClosed:
            with suppress(ServerDied):
                self.pool.server.collect(1.0, until=lambda: rank.child.status is not None)
            self._killed(rank)
            return
        if message["did"] == "display":
            self.outcome.displays.append((rank.index, message["data"]))
            return
        report: dict[str, Any] = {"state": "finished"}
        if message["did"] == "ready":
            self.pool.device_name = message["device"]
        if message["did"] in ("raised", "interrupted"):
            report = {**message, "state": message["did"]}
            report["error"] = f"{message['error']}: {message['text']}".splitlines()[0][:200]
        elif "pickle" in message:
            self.outcome.values[rank.index] = load_object(message, raw, fds)
        if message.get("ledger"):
            self.outcome.ledgers[rank.index] = Ledger.from_dict(message["ledger"])
        if "seq" in message:
            self.pool._seq[rank.index] = message["seq"]
        self.outcome.reports[rank.index] = report
        self.waiting.discard(rank.index)

    def endings(self) -> None:
        """Takes news of ranks that ended."""
        try:
            self.pool.server.collect()
        except ServerDied:
            for rank in self.ranks.values():
                rank.child.status = -signal.SIGKILL
        for index in list(self.waiting):
            if self.ranks[index].child.status is not None:
                self._killed(self.ranks[index])

    def _killed(self, rank: _Rank) -> None:
        self.drain(rank)
        where = self.seen.get(rank.index, {})
        at = f" (last seen at line {where['line']}: {where['source']})" if where.get("line") else ""
        self.outcome.reports[rank.index] = {
            "state": "killed", "error": ending(rank.child.status) + at,
        }  # fmt: skip
        self.waiting.discard(rank.index)

    # --- what does not come ----------------------------------------------------------------------
    def look(self) -> None:
        """Asks every rank that has not answered where it is; calls it a deadlock if none moves."""
        for index in self.waiting:
            with suppress(ChannelClosed):
                self.ranks[index].questions.send({"do": "where"})
        for index in self.waiting:
            with suppress(ChannelClosed, TimeoutError):
                found, _, _ = self.ranks[index].questions.receive(LOOK)
                self.outcome.reports[index] = {**found, "state": "running"}
        now, reports = time.monotonic(), dict(self.outcome.reports)
        if not autopsy.standstill(self.seen, reports, now - self.last_look):
            self.still_since = now
        self.seen, self.last_look = reports, now
        if self.judge and now - self.still_since >= self._patience(reports):
            self.outcome.verdict = "deadlock"

    def _patience(self, reports: dict[int, dict[str, Any]]) -> float:
        """Seconds to stand still before it counts: fewer once a rank has failed."""
        failed = any(report["state"] in ("raised", "killed") for report in reports.values())
        return min(1.0, self.pool.stall) if failed else self.pool.stall

    def interrupt(self) -> None:
        """Passes an interrupt on; ranks that do not answer it are left as `running`."""
        with suppress(KeyboardInterrupt):  # a second one means: at once
            self.look()
            for index in self.waiting:
                self.ranks[index].child.kill(signal.SIGINT)
            self.judge, self.watch = False, None
            self.deadline = time.monotonic() + GRACE
            self.next_look = self.next_watch = time.monotonic() + GRACE
            seen = dict(self.outcome.reports)
            self.until_done()
            for index, report in self.outcome.reports.items():
                if report["state"] in ("running", "interrupted"):
                    self.outcome.reports[index] = {**seen[index], "state": report["state"]}
        self.outcome.verdict = "interrupted"


def ending(status: int | None) -> str:
    """How a process ended, in words."""
    if status is None:
        return "closed its channel"
    if status < 0:
        with suppress(ValueError):
            return f"was killed by {signal.Signals(-status).name}"
        return f"was killed by signal {-status}"
    return f"exited with code {status}"


class _by_value:
    """While it lasts, functions of a user's own module are pickled by value.

    A rank cannot import a test module or a script that the kernel runs.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        module = sys.modules.get(getattr(function, "__module__", "") or "")
        path = getattr(module, "__file__", None) or ""
        ours = "site-packages" in path or f"{os.sep}course_lib{os.sep}" in path
        is_main = module is None or module.__name__ == "__main__"
        self.module = module if path and not ours and not is_main else None

    def __enter__(self) -> None:
        if self.module is not None:
            cloudpickle.register_pickle_by_value(self.module)

    def __exit__(self, *exc: object) -> None:
        if self.module is not None:
            cloudpickle.unregister_pickle_by_value(self.module)


def run_on_ranks(
    function: Callable[..., Any],
    world_size: int,
    *args: Any,
    server: ForkServer | None = None,
    timeout: float | None = None,
) -> list[Any]:
    """Calls `function(group, *args)` on `world_size` fresh ranks and returns the results.

    Args:
        function: any function; it and `args` are pickled by value where needed.
        world_size: how many ranks.
        args: further arguments, the same on every rank.
        server: a preloaded process to start them from; None starts one (seconds).
        timeout: seconds; None for no limit, deadlocks are found in any case.

    Returns:
        The results in rank order.

    Raises:
        RanksError: it raised on a rank, or did not end.
    """
    with Pool(world_size, server) as pool:
        return pool.run(function, *args, timeout=timeout)
