"""The one place that decides: who makes the next step, which batches it has, and whether it counts.

Notebook: 17 Training through failures.
Source: torchft's lighthouse and its vote before each commit; Gemini for checkpoints in memory.
Costs one message to and from each rank a step.
The production version can itself be restarted: its decisions are few, and kept on a disk.

A step is dealt out: members, connections between them if they are new, a batch for each that has
the weights. It counts if all members have confirmed that they have the mean, and only then do they
apply it. If a member is lost before, nobody has made the step: the others get it dealt out again,
and keep the batches that they had. A lost rank's batch goes back, and is dealt out later.
"""

from __future__ import annotations

import pickle
import socket
import time
from bisect import insort
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from course_lib.failures.quorum import Heartbeat, Limits, Quorum, alive, quorum
from course_lib.failures.record import Attempt, Counted, Fault, Happening, Plan, Record
from course_lib.failures.room import Room, Seat

TURN = 0.01  # seconds between two looks at the clock
PATIENCE = 120.0  # seconds until all processes must have begun, or a quorum must be there again


class Coordinator:
    """See `survive`, whose arguments these are."""

    def __init__(
        self, room: Room, batches: int, faults: Sequence[Fault], limits: Limits, plan: Plan
    ) -> None:
        self.room, self.limits, self.plan = room, limits, plan
        self.faults = sorted(faults)
        self.todo = list(range(batches))
        self.held: dict[int, int] = {}
        self.record = Record(len(room.seats))
        self.members = tuple(range(len(room.seats)))  # of the last step that counted
        self.present: set[int] = set()
        self.places: dict[int, str] = {}  # `works`, `heals` or `out`
        self.sources: dict[int, int] = {}  # of ranks that heal
        self.attempt: Attempt | None = None
        self.counts, self.linked = False, tuple[int, ...]()  # who has connections now
        self.begin = self.quiet = time.monotonic()
        self.kept = 0  # the step of the last checkpoint that was asked for
        self.back_at: float | None = None  # when a job that goes back may begin again

    # --- the whole run ---------------------------------------------------------------------------
    def run(self) -> Record:
        """Until all batches have counted."""
        for seat in self.room.seats:
            self.room.start(seat)
        self._hear_until(lambda: all(seat.ready for seat in self.room.seats))
        for seat in self.room.seats:
            seat.step = 0
        self.begin = self.quiet = time.monotonic()
        self.deal()
        while self.todo or self.held:
            self.strike()
            for seat, message, _ in self.room.listen(TURN):  # also that somebody has just ended
                self.take(seat, message)
            self.judge()
        self.record.seconds = self.now()
        self._collect()
        return self.record

    def now(self) -> float:
        """Seconds since the first step."""
        return time.monotonic() - self.begin

    def note(self, rank: int, what: str) -> None:
        """Writes down what happened to a rank."""
        self.record.happenings.append(Happening(self.now(), rank, what))

    def move(self, rank: int, place: str) -> None:
        """Writes down that a rank is in or out of the quorum, if that is new."""
        if self.places.get(rank) != place:
            self.places[rank] = place
            self.note(rank, place)

    def _hear_until(self, ready: Callable[[], bool]) -> None:
        """Takes what the ranks say.

        Raises:
            RuntimeError: a process has ended, or not begun in time.
        """
        deadline = time.monotonic() + PATIENCE
        while not ready():
            for seat, message, _ in self.room.listen(TURN):
                self.take(seat, message)
            gone = [seat.rank for seat in self.room.seats if seat.channel is None]
            if gone or time.monotonic() > deadline:
                raise RuntimeError(f"ranks {gone or 'all'} did not begin")

    def _collect(self) -> None:
        """Takes the state of every rank that has the newest weights."""
        want = {r for r in self.present if self.room.seats[r].ready and not self._fault(r)}
        for rank in want:
            self.room.seats[rank].send({"do": "end", "counts": self.counts, "keep": 0})
        deadline = time.monotonic() + PATIENCE
        while want - self.record.states.keys() and time.monotonic() < deadline:
            for seat, message, data in self.room.listen(TURN):
                if message["say"] == "end":
                    self.record.states[seat.rank] = pickle.loads(data).opened()
                else:
                    self.take(seat, message)
            want = {r for r in want if r in self.record.states or self.room.seats[r].channel}

    def _fault(self, rank: int) -> bool:
        return self.room.seats[rank].fault is not None

    # --- what befalls the ranks, and what they say -----------------------------------------------
    def strike(self) -> None:
        """Faults that are due, and the end of those that are over.

        A fault waits while its rank is away already, or if it would take the last weights.
        """
        now = self.now()
        for seat in self.room.seats:
            if seat.cured is not None and now >= seat.cured:
                self.room.cure(seat)
                self.note(seat.rank, "over")
        for fault in [f for f in self.faults if f.time <= now]:
            seat = self.room.seats[fault.rank]
            others = [each for each in self.room.seats if each is not seat]
            kept = any(each.rank in self.present and each.has_weights for each in others)
            if seat.ready and seat.fault is None and kept and self.back_at is None:
                self.faults.remove(fault)
                self.room.strike(fault, now)
                self.note(fault.rank, fault.kind)

    def take(self, seat: Seat, message: dict[str, Any]) -> None:
        """One word of one rank.

        Raises:
            RuntimeError: its job has raised something, which another attempt would not mend.
        """
        attempt = self.attempt
        if message["say"] == "hello":
            seat.ready, known = True, self.plan.way == "disk"
            seat.step = max(0, message["step"]) if known else None
            # Connections and the state under way went with the process that had them, or were
            # dropped by it: also where no decision without this rank has come in between.
            self.sources.pop(seat.rank, None)
            if seat.rank in self.linked:
                self.linked = ()
        elif message["say"] == "failed":
            raise RuntimeError(f"rank {seat.rank} has failed by itself:\n{message['why']}")
        elif message["say"] == "done" and attempt and message["attempt"] == attempt.number:
            attempt.losses[seat.rank] = message["loss"]
            if message["whole"]:
                attempt.whole.add(seat.rank)
            if message["again"]:
                attempt.again.add(seat.rank)

    def heartbeats(self) -> dict[int, Heartbeat]:
        """What was last heard of each rank that takes part, or wants to."""
        return {
            seat.rank: Heartbeat(seat.heard, seat.worked, seat.step)
            for seat in self.room.seats
            if seat.ready
        }

    # --- decisions -------------------------------------------------------------------------------
    def judge(self) -> None:
        """Whether the step counts, whether it still can, whether there is a quorum again."""
        attempt, now = self.attempt, time.monotonic()
        if self.back_at is not None:
            self.go_back_when_ready()
        elif attempt is not None and attempt.losses.keys() >= set(attempt.members):
            self.count(attempt)
            if self.todo or self.held:
                self.deal()
        elif attempt is None:
            self.deal()
        else:
            beats = self.heartbeats()
            lost = [
                rank
                for rank in attempt.members
                if rank not in beats or not alive(beats[rank], now, self.limits)
            ]
            if lost and self.plan.way == "quorum":
                self.attempt, self.linked = None, ()
                self.deal()
            elif lost:
                self.go_back(lost)

    def count(self, attempt: Attempt) -> None:
        """The step counts."""
        end, step = self.now(), len(self.record.counted)
        losses = {rank: attempt.losses[rank] for rank in attempt.batches}
        counted = Counted(attempt.begin - self.begin, end, step, attempt.batches, losses)
        self.record.counted.append(counted)
        self.members, self.counts, self.attempt = attempt.members, True, None
        for rank in attempt.batches:
            del self.held[rank]
        for rank in attempt.members:
            if rank in attempt.whole:
                self.sources.pop(rank, None)
                self.room.seats[rank].step = step + 1
        if attempt.again:
            self.sources = {r: s for r, s in self.sources.items() if r not in attempt.again}

    def deal(self) -> None:
        """Deals out the next step, or the same one again; nothing while there is no quorum."""
        found = quorum(self.members, self.heartbeats(), time.monotonic(), self.limits)
        if found is None:
            if time.monotonic() - self.quiet > PATIENCE:
                known = "; ".join(seat.standing() for seat in self.room.seats)
                raise RuntimeError(f"no quorum of {self.members} for {PATIENCE:g} s: {known}")
            return
        self.quiet = time.monotonic()
        self._send_away(found)
        for rank in found.present:
            if rank not in self.held and self.todo:
                self.held[rank] = self.todo.pop(0)
        self.record.attempts += 1
        batches = {rank: self.held[rank] for rank in found.present if rank in self.held}
        self.attempt = Attempt(self.record.attempts, found.members, batches)
        self._send_step(found, self.attempt)
        self.counts = False

    def _send_away(self, found: Quorum) -> None:
        """Who is no longer in the quorum gives its batch back, and must ask for a state."""
        for seat in self.room.seats:
            rank = seat.rank
            if rank not in found.present and rank in self.held:
                insort(self.todo, self.held.pop(rank))
            if rank in found.members:
                continue
            self.sources.pop(rank, None)
            if self.places.get(rank) != "out":
                self.move(rank, "out")
                seat.ready, seat.step = False, None
                seat.send({"do": "leave"})
        for what, ranks in (("works", found.present), ("heals", found.healing)):
            for rank in ranks:
                self.move(rank, what)
        self.present = set(found.present)

    def _send_step(self, found: Quorum, attempt: Attempt) -> None:
        """Tells all members, with the ends of new connections and of streams between them."""
        members, step = found.members, len(self.record.counted)
        every = 0 if self.room.kept is None else self.plan.every
        keep = step if self.counts and every and step % every == 0 else 0
        fresh = members != self.linked
        with ExitStack() as open_ends:
            ends: dict[int, list[socket.socket]] = {rank: [] for rank in members}
            gives: dict[int, list[bool]] = {rank: [] for rank in members}

            def link(first: int, second: int) -> None:
                for rank, end in zip((first, second), socket.socketpair(), strict=True):
                    ends[rank].append(open_ends.enter_context(end))

            if fresh:
                for place, first in enumerate(members):
                    for second in members[place + 1 :]:
                        link(first, second)
            for rank, source in found.healing.items():
                if self.sources.get(rank) not in found.present:
                    self.sources[rank] = source
                    link(source, rank)
                    gives[source].append(True)
                    gives[rank].append(False)
            for rank in members:
                message = {
                    "do": "step", "attempt": attempt.number, "counts": self.counts, "keep": keep,
                    "members": members, "batches": attempt.batches, "gives": gives[rank],
                    "peers": [r for r in members if r != rank] if fresh else [],
                    "alone": members == (rank,),
                }  # fmt: skip
                self.room.seats[rank].send(message, tuple(end.fileno() for end in ends[rank]))
        self.linked = members
        self.kept = keep or self.kept

    # --- the other two ways: all go back ---------------------------------------------------------
    def go_back(self, lost: Sequence[int]) -> None:
        """A rank is lost, and with it its part of the state: all return to a checkpoint."""
        for rank in lost:
            self.move(rank, "out")
        self.todo = sorted([*self.todo, *self.held.values()])
        self.held, self.sources, self.attempt, self.linked = {}, {}, None, ()
        self.counts, disk = False, self.plan.way == "disk"
        self.back_at = self.now() + (self.plan.startup if disk else 0.0)
        if disk:
            self.room.clear()
            return
        for seat in self.room.seats:
            if seat.rank in lost:
                seat.ready = False
                seat.send({"do": "leave"})
            else:
                seat.send({"do": "back"})
                seat.step = self.kept

    def go_back_when_ready(self) -> None:
        """Begins again once all machines are there."""
        seats = self.room.seats
        assert self.back_at is not None
        if self.now() < self.back_at or any(seat.fault is not None for seat in seats):
            return
        for seat in seats:
            if seat.channel is None and self.plan.way == "disk":
                self.room.start(seat)
        if all(seat.ready for seat in seats):
            if self.plan.way == "disk":  # older, if whoever was to write it was lost before
                self.kept = seats[0].step or 0
            undone = self.record.counted[self.kept :]
            del self.record.counted[self.kept :]
            batches = [batch for step in undone for batch in step.batches.values()]
            self.record.lost += len(batches)
            self.todo = sorted([*self.todo, *batches])
            self.back_at, self.members = None, tuple(range(len(seats)))
            self.deal()
