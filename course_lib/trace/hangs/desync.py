"""Finds where ranks stopped agreeing: the first call that they did not all make alike.

Notebook: 14 Profiling and debugging (find_desync, hang_lab).
Source: PyTorch's flight recorder analysis and `TORCH_DISTRIBUTED_DEBUG=DETAIL`, which compare the
same things: number, operation, shape.
Costs one pass over the logs.
The production version also knows the stack of every call, and which network link was slow.

The rule behind all of it: the ranks of a group make the same calls in the same order. A rank that
only has not come so far yet breaks no rule: it lags.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from course_lib.trace.hangs.flight import Channel, FlightLog, Record

FAILED = ("raised", "killed")
UNEVEN = "all_to_all"  # its parts may differ from rank to rank


@dataclass(frozen=True)
class Finding:
    """What is wrong, or who is late.

    Attributes:
        kind: `operation`, `dtype`, `shape` or `root`, where ranks made different calls under the
            same number; `stopped`, where a rank ended before a call that others made; `order`,
            where ranks wait in different calls for each other; `lagging`, where nothing is wrong.
        axis: name of the group's axis; "" if not known.
        channel: the group, or the two ends of a message.
        seq: number of the first call that not all made alike.
        ranks: the ranks that differ from the majority, or that the others wait for.
        text: what happened, in one sentence.
    """

    kind: str
    axis: str
    channel: Channel
    seq: int
    ranks: tuple[int, ...]
    text: str

    @property
    def fault(self) -> bool:
        """Whether this never ends by itself: everything but a rank that lags."""
        return self.kind != "lagging"


def find_desync(logs: Iterable[FlightLog]) -> Finding | None:
    """Compares the logs of all ranks, taken at about the same time.

    Args:
        logs: one a rank. Of a rank without a log nothing is concluded.

    Returns:
        The first mismatch; else a rank that others wait for; None if there is neither.
    """
    books = {log.rank: log for log in logs}
    return _different_calls(books) or _Standstill(books).finding()


# --- the same number, another call ---------------------------------------------------------------
def _different_calls(books: Mapping[int, FlightLog]) -> Finding | None:
    """The earliest call that ranks made differently under the same number on the same channel."""
    by_call: dict[tuple[Channel, int], dict[int, Record]] = {}
    for log in books.values():
        for record in log.records:
            by_call.setdefault((record.channel, record.seq), {})[log.rank] = record
    wrong = {call: made for call, made in by_call.items() if _difference(made)}
    if not wrong:
        return None
    channel, _ = min(wrong, key=lambda call: min(r.begin for r in wrong[call].values()))
    # After the first mismatch of a channel every later call there may differ too.
    first = min(seq for where, seq in wrong if where == channel)
    return _describe(wrong[channel, first], by_call.get((channel, first + 1), {}))


def _difference(made: Mapping[int, Record]) -> str:
    """In what the records of one call differ: a kind of finding; "" if in nothing that matters."""
    for kind in ("operation", "dtype", "shape", "root"):
        if len({_feature(kind, record) for record in made.values()}) > 1:
            return kind
    return ""


def _feature(kind: str, record: Record) -> object:
    """What must be the same on all ranks. Of messages only the bytes are compared."""
    message = record.channel.sender >= 0
    if kind == "shape":
        if record.op.endswith(UNEVEN):
            return None
        return record.payload if message else (record.payload, record.shape)
    if message:
        return None
    return {"operation": record.op, "dtype": record.dtype, "root": record.peer}[kind]


def _describe(made: Mapping[int, Record], later: Mapping[int, Record]) -> Finding:
    """A finding of one call, given the next one on the same channel."""
    kind, some = _difference(made), next(iter(made.values()))
    alike: dict[object, list[int]] = {}
    for rank in sorted(made):
        alike.setdefault(_feature(kind, made[rank]), []).append(rank)
    usual, *others = sorted(alike.values(), key=lambda ranks: (-len(ranks), ranks))
    odd = tuple(sorted(rank for ranks in others for rank in ranks))
    each = "; ".join(f"{names(ranks)} {_said(kind, made[ranks[0]])}" for ranks in (usual, *others))
    text = f"Call {some.seq} on {_place(some)} is not the same everywhere: {each}"
    text += _slip(made, later, usual[0], odd) + "."
    return Finding(kind, some.axis, some.channel, some.seq, odd, text)


def _said(kind: str, record: Record) -> str:
    if kind == "operation":
        return f"called {record.op}"
    if kind == "root":
        return f"named rank {record.peer} as the root"
    if kind == "dtype":
        return f"gave {record.dtype}"
    return f"gave {list(record.shape)}, {record.payload} bytes"


def _slip(
    made: Mapping[int, Record], later: Mapping[int, Record], usual: int, odd: tuple[int, ...]
) -> str:
    """Whether a call was left out or made once too often: then the next one fits."""
    if len(odd) != 1:
        return ""
    (rank,) = odd
    if usual in later and _difference({rank: made[rank], usual: later[usual]}) == "":
        return f" (rank {rank} left one call out: this is the others' call {made[rank].seq + 1})"
    if rank in later and _difference({rank: later[rank], usual: made[usual]}) == "":
        return f" (rank {rank} made one call more: its next one is the others' call)"
    return ""


# --- calls that some have not made ---------------------------------------------------------------
class _Standstill:
    """Who waits for whom, and whether that can end.

    Args:
        books: rank to its log.
    """

    def __init__(self, books: Mapping[int, FlightLog]) -> None:
        self._books = books
        self._coming = self._can_go_on()

    def finding(self) -> Finding | None:
        """The call that was the first to miss a rank that will never make it; else who lags."""
        lacking = [record for log in self._books.values() for record in log.records]
        lacking = sorted((r for r in lacking if self._missing(r)), key=lambda r: (r.begin, r.rank))
        failed = [r for r in lacking if any(self._state(m) in FAILED for m in self._missing(r))]
        hopeless = [r for r in lacking if not self._coming.issuperset(self._missing(r))]
        for record in (*failed, *hopeless):
            return self._fault(record)
        return self._lag(lacking[0]) if lacking else None

    def _state(self, rank: int) -> str:
        return self._books[rank].state

    def _missing(self, record: Record) -> list[int]:
        """The ranks that have not made this call, of those whose log is here."""
        return [
            rank
            for rank in record.channel.ends
            if rank in self._books and self._books[rank].made.get(record.channel, 0) <= record.seq
        ]

    def _can_go_on(self) -> set[int]:
        """The ranks that are at work, or wait only for such: found from the first to the last."""
        coming: set[int] = set()
        left = {rank for rank in self._books if self._state(rank) == "running"}
        while more := {rank for rank in left if self._waits_for(rank) <= coming}:
            coming |= more
            left -= more
        return coming

    def _waits_for(self, rank: int) -> set[int]:
        waiting = self._books[rank].waiting
        return set(self._missing(waiting)) if waiting else set()

    def _fault(self, record: Record) -> Finding:
        late = [rank for rank in self._missing(record) if rank not in self._coming]
        kind = "stopped" if any(self._state(rank) != "running" for rank in late) else "order"
        each = "; ".join(f"rank {rank} {self._instead(rank, record)}" for rank in late)
        text = f"{self._callers(record)}; {each}."
        return Finding(kind, record.axis, record.channel, record.seq, tuple(late), text)

    def _instead(self, rank: int, record: Record) -> str:
        """What a rank did that did not make this call."""
        count = self._books[rank].made.get(record.channel, 0)
        unit = "message" if record.channel.sender >= 0 else "call"
        made = f"{count} {unit}{'' if count == 1 else 's'} there"
        if self._state(rank) != "running":
            return f"{self._state(rank)} after {made}"
        waiting = self._books[rank].waiting
        where = f" and waits in {call_name(waiting)}" if waiting else ""
        return f"has made {made}{where}"

    def _callers(self, record: Record) -> str:
        """Who made the call, and whether they stand still in it."""
        here = [
            other
            for log in self._books.values()
            for other in log.records
            if (other.channel, other.seq) == (record.channel, record.seq)
        ]
        ranks = [other.rank for other in here]
        still = all(other.state == "waiting" for other in here)
        verb = ("waits in" if len(ranks) == 1 else "wait in") if still else "called"
        text = f"{names(ranks)} {verb} {call_name(record)}"
        return text[0].upper() + text[1:]

    def _lag(self, record: Record) -> Finding:
        """Nothing is wrong: the ranks at the end of the chain are still at work."""
        late = self._missing(record)
        while (waiting := self._books[late[0]].waiting) and self._missing(waiting):
            record, late = waiting, self._missing(waiting)  # it only waits itself
        behind = max(record.seq + 1 - self._books[r].made.get(record.channel, 0) for r in late)
        verb, unit = ("is", "lags") if len(late) == 1 else ("are", "lag")
        text = (
            f"{names(late).capitalize()} {verb} {behind} behind at {call_name(record)}, and all "
            f"calls so far agree: {'it' if len(late) == 1 else 'they'} {unit}."
        )
        return Finding("lagging", record.axis, record.channel, record.seq, tuple(late), text)


# --- in words ------------------------------------------------------------------------------------
def call_name(record: Record) -> str:
    """`all_reduce, call 3 on dp [0, 2]` or `recv from rank 2 (message 0)`."""
    if record.channel.sender < 0:
        return f"{record.op}, call {record.seq} on {_place(record)}"
    way = "to" if record.op == "send" else "from"
    return f"{record.op} {way} rank {record.peer} (message {record.seq})"


def _place(record: Record) -> str:
    if record.channel.sender >= 0:
        return f"the way from rank {record.channel.sender} to rank {record.channel.receiver}"
    return f"{record.axis or 'ranks'} {list(record.group)}"


def names(ranks: Iterable[int]) -> str:
    """`rank 2`; `ranks 0, 1 and 3`."""
    order = sorted(ranks)
    if len(order) == 1:
        return f"rank {order[0]}"
    return "ranks " + ", ".join(map(str, order[:-1])) + f" and {order[-1]}"
