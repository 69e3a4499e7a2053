"""A rank's own account book: every call, its bytes and its times, and the memory it holds by class.

Notebook: 00 Ranks and the ledger; every later lesson reads it.
Source: PyTorch's flight recorder and memory snapshot do the same for NCCL and for CUDA memory.
Costs: one Event a call (about 3 microseconds); nothing is sent until somebody asks for the ledger.
The production version is bounded and lives in C++, so that it survives a crash of the interpreter.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from course_lib.trace.calls import Calls
from course_lib.trace.event import Event, Span
from course_lib.trace.listener import Listener
from course_lib.trace.own_line import own_line
from course_lib.trace.refusal import Refusal

MEMORY_CLASSES = (
    "parameters",
    "gradients",
    "optimizer state",
    "activations",
    "communication buffers",
)


class Counted(NamedTuple):
    """Calls that are numbered together, so that ranks that agree give the same number to each.

    Attributes:
        group: global ranks of the group.
        sort: `collective`; `part`, of a collective that is built from others; `send` or `recv`.
        peer: of messages, global rank of the other end; else -1.
    """

    group: tuple[int, ...]
    sort: str
    peer: int


class Place(NamedTuple):
    """How much a ledger held at one moment.

    Attributes:
        events: how many events had begun.
        spans: how many spans had ended.
        samples: how many memory samples there were.
        at: the moment, in seconds on the machine's clock.
    """

    events: int
    spans: int
    samples: int
    at: float


class Ledger:
    """What one rank sent, received, computed and held.

    Args:
        rank: the global rank whose book this is.
        clock: seconds, the same clock for all ranks whose books are laid side by side; on a
            simulated cluster the time is a virtual one.

    Attributes:
        events: communication calls, in the order in which they began.
        spans: stretches of work and, with no length, marks.
        held: bytes held now, by memory class.
        peak: the most that was held at any time, by memory class.
        samples: (seconds on the machine's clock, class, bytes held from then on), for each change.
        counts: how many calls of each sort have begun, also those that are forgotten.
        listener: who is told of calls; None for nobody.
    """

    def __init__(self, rank: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.rank = rank
        self.clock = clock
        self.events: list[Event] = []
        self.spans: list[Span] = []
        self.held: dict[str, int] = {}
        self.peak: dict[str, int] = {}
        self.samples: list[tuple[float, str, int]] = []
        self.counts: dict[Counted, int] = {}
        self.listener: Listener | None = None
        self._parents: list[Event] = []
        self._lines: list[tuple[str, int]] = []

    # --- calls -------------------------------------------------------------------------------
    def begin(
        self,
        op: str,
        *,
        axis: str,
        group: tuple[int, ...],
        payload: int,
        tensors: tuple[Any, Any] = (None, None),
        **fields: Any,
    ) -> Event:
        """Opens an event. `fields` are further fields of `Event`; bytes may be set until `finish`.

        A message begun inside `within(event)` becomes a part of that event. `tensors` are what the
        call reads and where its result will be; only the listener sees them.
        """
        parent = self._parents[-1].number if self._parents else -1
        sort = _counted(op, group, fields.get("peer", -1), parent)
        seq = self.counts.get(sort, 0)
        self.counts[sort] = seq + 1
        event = Event(
            rank=self.rank, number=len(self.events), op=op, axis=axis, group=group, seq=seq,
            payload=payload, sent=fields.pop("sent", 0), received=fields.pop("received", 0),
            begin=self.clock(), parent=parent, **fields,
        )  # fmt: skip
        self.events.append(event)
        self._lines.append(own_line() if parent < 0 else self._lines[parent])
        if self.listener is not None and parent < 0:
            self.listener.began(event, self.line_of(event), *tensors)
        return event

    def finish(self, event: Event, arrived: float | None = None) -> None:
        """Closes an event, and adds a message's bytes to the collective it belongs to.

        Args:
            event: one that is open; a second call does nothing.
            arrived: when its data were there, on the machine's clock, if that is known.
        """
        if event.end is None:
            event.end, event.arrived = self.clock(), arrived
            if event.parent >= 0:
                self.events[event.parent].sent += event.sent
                self.events[event.parent].received += event.received
            elif self.listener is not None:
                self.listener.ended(event)

    @contextmanager
    def within(self, event: Event) -> Iterator[Event]:
        """Messages begun in this block are parts of `event`, which ends with the block.

        The program does nothing else meanwhile: it waits for the event from its beginning.
        """
        event.waited = event.begin
        self._parents.append(event)
        try:
            yield event
        finally:
            self._parents.pop()
        self.finish(event)

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        """Records the block as a stretch of work called `name`."""
        begin = self.clock()
        try:
            yield
        finally:
            self.add_span(name, begin)

    def add_span(self, name: str, begin: float) -> None:
        """Records what has gone on since `begin`, seconds on the machine's clock, until now."""
        self.spans.append(Span(self.rank, name, begin, self.clock()))

    def mark(self, name: str) -> None:
        """Records a moment as a span of no length: `ready head.weight`, `free blocks.0`."""
        now = self.clock()
        self.spans.append(Span(self.rank, name, now, now))

    def line_of(self, event: Event) -> str:
        """The program's line that made a call, as `train.py, line 12`; "" in a ledger from JSON."""
        if event.number >= len(self._lines):
            return ""
        path, line = self._lines[event.number]
        return f"{path.replace(os.sep, '/').rpartition('/')[2]}, line {line}"

    def open_events(self) -> list[Event]:
        """Calls that have begun and not ended: what this rank is waiting in."""
        return [event for event in self.events if event.end is None]

    # --- memory ------------------------------------------------------------------------------
    @contextmanager
    def hold(self, memory_class: str, count: int) -> Iterator[None]:
        """Counts `count` bytes as held in `memory_class` while the block runs.

        Raises:
            Refusal: `memory_class` is not one of MEMORY_CLASSES.
        """
        self.add_memory(memory_class, count)
        try:
            yield
        finally:
            self.add_memory(memory_class, -count)

    def add_memory(self, memory_class: str, count: int) -> None:
        """Counts `count` more bytes (fewer, if negative) as held from now on."""
        if memory_class not in MEMORY_CLASSES:
            raise Refusal(
                f"count {count} bytes as {memory_class!r}",
                f"known classes: {', '.join(MEMORY_CLASSES)}",
                "memory is compared by class over ranks, so every rank must use the same names",
            )
        self.held[memory_class] = self.held.get(memory_class, 0) + count
        self.peak[memory_class] = max(self.peak.get(memory_class, 0), self.held[memory_class])
        self.samples.append((self.clock(), memory_class, self.held[memory_class]))

    # --- totals and data -----------------------------------------------------------------------
    def calls(self, op: str | None = None, axis: str | None = None) -> list[Event]:
        """Events without a parent, all or those of one operation or one axis."""
        return [
            event
            for event in self.events
            if event.parent < 0 and op in (None, event.op) and axis in (None, event.axis)
        ]

    def sent(self, op: str | None = None, axis: str | None = None) -> int:
        """Bytes this rank put on the wire, all or for one operation or one axis."""
        return sum(event.sent for event in self.calls(op, axis))

    def received(self, op: str | None = None, axis: str | None = None) -> int:
        """Bytes this rank took from the wire, all or for one operation or one axis."""
        return sum(event.received for event in self.calls(op, axis))

    @contextmanager
    def record(self) -> Iterator[Calls]:
        """Gathers the calls that begin in the block; read them after it, or while it runs."""
        calls = Calls(self.events)
        try:
            yield calls
        finally:
            calls.end()

    def place(self) -> Place:
        """Where the book is now: what is recorded from here on is `to_dict(place)`."""
        return Place(len(self.events), len(self.spans), len(self.samples), self.clock())

    def forget(self) -> None:
        """Drops what is recorded so far, so that a long run does not keep it all.

        What is held and the peaks stay, so that a curve of memory goes on from there. Nothing is
        dropped while a call is under way.
        """
        if not self.open_events():
            self.events, self.spans, self._lines = [], [], []
            now = self.clock()
            self.samples = [(now, kind, count) for kind, count in self.held.items() if count]

    def to_dict(self, since: Place | None = None) -> dict[str, Any]:
        """The ledger as JSON-ready data, all or from a place on.

        What was held at that place comes as one sample a class, so that a curve begins there.
        """
        since = since or Place(0, 0, 0, 0.0)
        before = {kind: count for _, kind, count in self.samples[: since.samples]}
        samples = [(since.at, kind, count) for kind, count in before.items()]
        return {
            "rank": self.rank,
            "events": [event.to_dict() for event in self.events[since.events :]],
            "spans": [span.to_dict() for span in self.spans[since.spans :]],
            "samples": [list(s) for s in samples + self.samples[since.samples :]],
            "held": dict(self.held),
            "peak": dict(self.peak),
        }

    @staticmethod
    def from_dict(data: dict[str, Any]) -> Ledger:
        """The ledger that `to_dict` made `data` of; events keep their numbers."""
        ledger = Ledger(data["rank"])
        ledger.events = [Event.from_dict(event) for event in data["events"]]
        ledger.spans = [Span(**span) for span in data["spans"]]
        ledger.samples = [(at, kind, count) for at, kind, count in data["samples"]]
        ledger.held, ledger.peak = dict(data["held"]), dict(data["peak"])
        for event in ledger.events:
            ledger.counts[_counted(event.op, event.group, event.peer, event.parent)] = event.seq + 1
        return ledger


def _counted(op: str, group: tuple[int, ...], peer: int, parent: int) -> Counted:
    if op in ("send", "recv"):
        return Counted(group, op, peer)
    return Counted(group, "part" if parent >= 0 else "collective", -1)
