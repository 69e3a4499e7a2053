"""Virtual time: the program of every distinct rank, one at a time, each with a clock of its own.

Notebook: 13 The mesh (a cluster in the cell).
Paper: Casanova et al. (SimGrid, 2014); Clauss et al., "Single Node On-Line Simulation of MPI
Applications with SMPI" (2011): real programs, one process, a simulated network.
Costs a thread for each rank that is run, of which one has the turn.
The production version (SMPI) switches between programs without threads, and folds their memory.

A rank has the turn until it waits for a call that has not ended. It may be far ahead of the others:
nobody asks for its time before they meet. When all wait, the network goes on to its next event.
That is never too late, since whoever is freed then begins nothing before it. When all wait and
nothing is under way, no one can ever go on: a deadlock is known, at once and exactly.
"""

from __future__ import annotations

import ctypes
import heapq
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import Any

import torch

from course_lib.cluster.fold import Fold
from course_lib.cluster.meetings import Call, Meetings
from course_lib.cluster.wires import Wires
from course_lib.comm.matching import Meeting, Post, find_deadlock
from course_lib.trace import Ledger, Refusal

PEEK = 1e-6  # virtual seconds that a look at a call takes, so that who looks again and again ends
LONGER = 0.01  # of the time for which a rank has only looked: so long is its next look
LOOKS = 10_000  # in vain, while nobody begins or ends a call: then looking is waiting
STACK = 64 << 20  # bytes of a thread: a backward through many blocks is deep
GRACE = 3.0  # seconds for all programs to end in, when the simulation has
KNOCK = 0.02  # seconds between two times that a program which computes is told so


class Stopped(SystemExit):
    """Ends the program of a rank, because the simulation has ended; a thread ends with it."""


class Deadlocked(Refusal):
    """Ranks that wait for calls which can never end.

    Attributes:
        stuck: global rank to the meeting that it waits in.
        ledgers: global rank to its book, for its line.
    """

    def __init__(self, text: str, stuck: Mapping[int, Meeting]) -> None:
        super().__init__(
            "the end of a program on simulated ranks", text, "no rank computes, no call can end"
        )
        self.args = (text, stuck)  # of which copy makes it again
        self.stuck = stuck
        self.ledgers: dict[int, Ledger] = {}

    def reports(self) -> dict[int, dict[str, Any]]:
        """What each rank waits in, in the words of an autopsy (`ranks.pool.autopsy`)."""
        found = {}
        for rank, meeting in sorted(self.stuck.items()):
            post, book = meeting.posts[rank], self.ledgers[rank]
            events = [event for event in book.open_events() if event.op == post.op]
            place = book.line_of(events[-1]) if events else ""
            found[rank] = {
                "state": "running", "talking": True, "call": post.op, "seq": meeting.seq,
                "peer": post.peer, "group": list(meeting.group), "shape": [post.numel],
                "dtype": post.dtype, "axis": events[-1].axis if events else "",
                "line": place.rpartition(" ")[2], "source": place,
            }  # fmt: skip
        return found


class Failed(Exception):
    """The program of a rank raised.

    Attributes:
        rank: which.
        cause: what.
    """

    def __init__(self, rank: int, cause: BaseException) -> None:
        super().__init__(rank, cause)  # as `args`, of which pickle makes it again
        self.rank, self.cause = rank, cause

    def __str__(self) -> str:
        return f"rank {self.rank}: {self.cause}"


class Rank:
    """One program: its clock, and its turn."""

    def __init__(self, number: int) -> None:
        self.number, self.now = number, 0.0
        self.turn: SimpleQueue[None] = SimpleQueue()  # a semaphore written in C
        self.waits: Call | None = None
        self.value: Any = None
        self.error: BaseException | None = None
        self.thread: threading.Thread | None = None
        self.looks_since = self.looked = 0.0  # its first look of those that follow each other, last

    def clock(self) -> float:
        """Virtual seconds since the beginning."""
        return self.now


class Handle:
    """A call of one rank."""

    def __init__(self, engine: Engine, rank: Rank, call: Call, *data: torch.Tensor) -> None:
        self._engine, self._rank, self._call = engine, rank, call
        self._data = data  # a network's handle keeps what it reads and writes

    def wait(self, _limit: object = None) -> None:
        """Returns in the moment, of virtual time, when the call has ended."""
        self._engine.wait(self._rank, self._call)

    def is_completed(self) -> bool:
        """Whether it has ended by now, of this rank's time."""
        return self._engine.has_ended(self._rank, self._call)

    def when_done(self, then: Callable[[float], None]) -> None:
        """Calls `then` with the time of its end."""
        if self._call.end is None:
            self._call.then.append(then)
        else:
            then(self._call.end)


class Engine:
    """All ranks that are run, and the network between them; the `Fabric` of their transports.

    Args:
        fold: which ranks are run.
        wires: the network.
    """

    def __init__(self, fold: Fold, wires: Wires) -> None:
        self.wires, self.world = wires, fold.world
        self.ranks = {number: Rank(number) for number in fold.representatives}
        self.current: Rank | None = None
        self._meetings = Meetings(fold, wires, self._wake)
        self._ready: list[tuple[float, int]] = []
        self._back: SimpleQueue[None] = SimpleQueue()
        self._stopping = False
        self._in_vain = 0  # looks of all ranks since a call began or ended

    # --- turns -----------------------------------------------------------------------------------
    def run(self, program: Callable[[Rank], Any]) -> None:
        """Runs the program of every rank to its end.

        Raises:
            Deadlocked: some can never go on.
            Failed: the first program that raised.
        """
        self._ready = [(0.0, number) for number in self.ranks]
        try:
            self._start(program)
            self._loop()
        finally:
            self._stop()

    def _start(self, program: Callable[[Rank], Any]) -> None:
        before = threading.stack_size(STACK)
        try:
            for rank in self.ranks.values():
                name = f"simulated rank {rank.number}"
                rank.thread = threading.Thread(
                    target=self._body, args=(rank, program), name=name, daemon=True
                )
                rank.thread.start()
        finally:
            threading.stack_size(before)

    def _loop(self) -> None:
        while True:
            while self._ready:
                rank = self.ranks[heapq.heappop(self._ready)[1]]
                self._give_turn(rank)
                if rank.error is not None:
                    raise Failed(rank.number, rank.error) from rank.error
            if not self.wires.advance():
                return self._check_all_ended()

    def _give_turn(self, rank: Rank) -> None:
        self.current = rank
        rank.turn.put(None)
        self._back.get()
        self.current = None

    def _body(self, rank: Rank, program: Callable[[Rank], Any]) -> None:
        with suppress(Stopped):  # it may come as late as here: then nobody waits for the turn
            rank.turn.get()
            try:
                if not self._stopping:
                    rank.value = program(rank)
            except Stopped:
                pass
            except BaseException as error:
                rank.error = error
            rank.thread = None
            self._back.put(None)

    def _stop(self) -> None:
        """Ends all programs; one that nothing ends in time, such as a long C call, is left behind.

        After an interrupt a program may still compute, and perhaps never wait for a call again.
        """
        self._stopping = True
        until = time.monotonic() + GRACE
        with _unsaid(Stopped):
            for rank in self.ranks.values():
                rank.turn.put(None)
                while (thread := rank.thread) and thread.is_alive() and time.monotonic() < until:
                    thread.join(KNOCK)
                    if thread.is_alive() and thread.ident is not None:
                        ctypes.pythonapi.PyThreadState_SetAsyncExc(
                            ctypes.c_ulong(thread.ident), ctypes.py_object(Stopped)
                        )

    def _check_all_ended(self) -> None:
        waiting = {
            rank.number: rank.waits.meeting
            for rank in self.ranks.values()
            if rank.waits is not None and rank.waits.meeting is not None
        }
        found = find_deadlock(waiting, computing=())
        if found is not None:
            raise Deadlocked(found.text, found.stuck)

    def wait(self, rank: Rank, call: Call) -> None:
        """Returns when the call has ended; meanwhile others have their turn."""
        while call.end is None:
            rank.waits = call
            call.waiters.append(rank)
            if not self._is_next(rank):
                self._back.put(None)
                rank.turn.get()
            if self._stopping:
                raise Stopped
            rank.waits = None
        rank.now = max(rank.now, call.end)

    def _is_next(self, rank: Rank) -> bool:
        """Whether the network frees this rank before any other: then it keeps the turn.

        A turn costs two switches of threads, which are a good part of a simulation's time.
        """
        while not self._ready and self.wires.advance():
            pass
        if not self._ready or self._ready[0][1] != rank.number:
            return False
        heapq.heappop(self._ready)
        return True

    def has_ended(self, rank: Rank, call: Call) -> bool:
        """Whether a call has ended at this rank's time, to which the others come first."""
        if call.end is None:
            alarm = Call(None)
            self.wires.start(self.wires.price("barrier", [rank.number], 0), rank.now, alarm.done)
            alarm.then.append(lambda _: self._wake(alarm))
            self.wait(rank, call if self._in_vain > LOOKS else alarm)
        if call.end is not None and call.end <= rank.now:
            return True
        self._in_vain += 1
        if rank.now > rank.looked:
            rank.looks_since = rank.now
        rank.now += max(PEEK, LONGER * (rank.now - rank.looks_since))
        rank.looked = rank.now
        return False

    def _wake(self, call: Call) -> None:
        if call.meeting is not None:
            self._in_vain = 0
        for rank in call.waiters:
            heapq.heappush(self._ready, (rank.now, rank.number))

    # --- the network, as transports see it -------------------------------------------------------
    def post(self, post: Post, payload: int, output: torch.Tensor, input: torch.Tensor) -> Handle:
        """See `comm.simulated_transport.Fabric.post`."""
        rank = self.ranks[post.rank]
        call = self._meetings.post(post, rank.now, payload, output, input)
        self._in_vain = 0
        return Handle(self, rank, call, output, input)

    def split(self, rank: int, parts: Sequence[Sequence[int]]) -> int:
        """See `comm.simulated_transport.Fabric.split`."""
        real = next(tuple(part) for part in parts if rank in part)
        call = self._meetings.cut(rank, real, self.ranks[rank].now)
        self.wait(self.ranks[rank], call)
        return self._meetings.made(call, rank, real, parts)


@contextmanager
def _unsaid(error: type[BaseException]) -> Iterator[None]:
    """Within, Python says nothing of this error where it cannot raise it.

    That is in the callback of a weak reference, for one. Who raises it in a thread does so again.
    """
    before = sys.unraisablehook
    sys.unraisablehook = lambda lost: None if lost.exc_type is error else before(lost)
    try:
        yield
    finally:
        sys.unraisablehook = before
