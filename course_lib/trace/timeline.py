"""The ledgers of all ranks on one clock: totals, overlap, a table and a Chrome trace.

Notebook: 00 Ranks and the ledger; 02 for overlap; 14 reads whole traces.
Source: the Chrome trace event format ("Trace Event Format", Google), read by Perfetto.
Costs nothing on the wire: ledgers are gathered after the run.
The production version (torch.profiler with Kineto) also has every kernel on the device.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from course_lib.trace.event import Event, Span
from course_lib.trace.intervals import Interval, length, overlap, union
from course_lib.trace.ledger import Ledger
from course_lib.trace.wire import formula_text, wire_bytes


class Timeline:
    """Ledgers of several ranks, merged. All ranks of one machine share its monotonic clock.

    Args:
        ledgers: one per rank.
    """

    def __init__(self, ledgers: Iterable[Ledger]) -> None:
        self.ledgers = sorted(ledgers, key=lambda ledger: ledger.rank)

    @property
    def ranks(self) -> list[int]:
        """The ranks whose ledgers are here."""
        return [ledger.rank for ledger in self.ledgers]

    @property
    def begin(self) -> float:
        """Time of the first thing recorded, in seconds on the machine's clock; 0 if nothing is."""
        return min((item.begin for item in self._items()), default=0.0)

    @property
    def end(self) -> float:
        """Time of the last end recorded; 0 if nothing is."""
        return max((item.end or item.begin for item in self._items()), default=0.0)

    def _items(self) -> Iterable[Event | Span]:
        for ledger in self.ledgers:
            yield from ledger.events
            yield from ledger.spans

    def rank(self, rank: int) -> Ledger:
        """The ledger of one rank.

        Raises:
            KeyError: that rank has none here.
        """
        for ledger in self.ledgers:
            if ledger.rank == rank:
                return ledger
        raise KeyError(f"no ledger of rank {rank} here; there are those of {self.ranks}")

    def sent(self, op: str | None = None, axis: str | None = None) -> list[int]:
        """Bytes each rank put on the wire, in rank order."""
        return [ledger.sent(op, axis) for ledger in self.ledgers]

    # --- time ------------------------------------------------------------------------------------
    def communication(self, rank: int) -> list[Interval]:
        """When this rank had at least one call under way, as intervals that do not overlap."""
        calls = self.rank(rank).calls()
        return union((call.begin, call.over) for call in calls if call.over is not None)

    def exposed(self, rank: int) -> float:
        """Seconds in which this rank communicated and did none of its recorded work."""
        work = union((span.begin, span.end) for span in self.rank(rank).spans)
        both = overlap(self.communication(rank), work)
        return length(self.communication(rank)) - both

    # --- tables ----------------------------------------------------------------------------------
    def rows(self) -> list[dict[str, Any]]:
        """One row for each (operation, axis): calls, bytes measured and bytes by the formula.

        Messages outside any collective have a row of their own. `sent` and `formula_sent` are
        lists over ranks, in bytes.
        """
        keys: dict[tuple[str, str, str], None] = {}
        for ledger in self.ledgers:
            keys.update({(e.shown, e.op, e.axis): None for e in ledger.calls()})
        return [self._row(*key) for key in keys]

    def _row(self, label: str, op: str, axis: str) -> dict[str, Any]:
        mine = [[e for e in book.calls(op, axis) if e.shown == label] for book in self.ledgers]
        return {
            "op": label,
            "axis": axis,
            "calls": [len(events) for events in mine],
            "messages": [
                sum(part.parent == event.number and part.op == "send" for part in book.events)
                for book, events in zip(self.ledgers, mine, strict=True)
                for event in events[:1]
            ],
            "payload": [sum(event.payload for event in events) for events in mine],
            "sent": [sum(event.sent for event in events) for events in mine],
            "received": [sum(event.received for event in events) for events in mine],
            "formula": formula_text(op),
            "formula_sent": [sum(formula_sent(event) for event in events) for events in mine],
        }

    def table(self) -> str:
        """The rows as text, the same for every run of the same program: no times in it."""
        head = ["operation", "group", "calls", "S", "sent/rank", "formula", "predicted"]
        lines = [head]
        for row in self.rows():
            lines.append(
                [row["op"], row["axis"], spread(row["calls"]), spread(row["payload"]),
                 spread(row["sent"]), row["formula"], spread(row["formula_sent"])]
            )  # fmt: skip
        if len(lines) == 1:
            return "ledger: no communication"
        widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
        text = ["  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip()
                for line in lines]  # fmt: skip
        names = sorted({name for book in self.ledgers for name in book.peak if book.peak[name]})
        for name in names:
            peaks = spread([book.peak.get(name, 0) for book in self.ledgers])
            text.append(f"peak {name}: {peaks} bytes/rank")
        return "\n".join(text)

    # --- export ----------------------------------------------------------------------------------
    def chrome_trace(self) -> str:
        """The timeline as Chrome trace JSON: one process a rank, for Perfetto or chrome://tracing."""
        begin = self.begin
        out: list[dict[str, Any]] = []
        for ledger in self.ledgers:
            out.append({"ph": "M", "pid": ledger.rank, "name": "process_name",
                        "args": {"name": f"rank {ledger.rank}"}})  # fmt: skip
            out += [_chrome_event(span, begin) for span in ledger.spans]
            out += [_chrome_event(event, begin) for event in ledger.events]
        return json.dumps({"traceEvents": out, "displayTimeUnit": "ms"})


def _chrome_event(item: Event | Span, begin: float) -> dict[str, Any]:
    end = item.begin if item.end is None else item.end
    place = {"ph": "X", "pid": item.rank, "ts": round((item.begin - begin) * 1e6, 3),
             "dur": round((end - item.begin) * 1e6, 3)}  # fmt: skip
    if isinstance(item, Span):
        return {**place, "tid": "work", "name": item.name, "args": {}}
    lane = "messages" if item.parent >= 0 else "calls"
    return {**place, "tid": lane, "name": item.label, "args": item.to_dict()}


def formula_sent(event: Event) -> int:
    """Bytes that this call would send by its formula, in the bandwidth-optimal algorithm."""
    if event.op in ("send", "recv"):
        return event.payload if event.op == "send" else 0
    index = event.group.index(event.rank)
    if event.peer >= 0:  # rooted collectives count from their root
        index = (index - event.group.index(event.peer)) % len(event.group)
    return wire_bytes(event.op, event.payload, len(event.group), index, event.item)[0]


def spread(values: Sequence[int]) -> str:
    """`12` if all ranks have 12, else `12–16`; thousands are grouped."""
    low, high = min(values, default=0), max(values, default=0)
    return f"{low:,}" if low == high else f"{low:,}–{high:,}"
