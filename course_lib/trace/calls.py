"""The calls of a stretch of a program, and what they sent: what `ledger.record()` gives."""

from __future__ import annotations

from course_lib.trace.event import Event


class Calls:
    """Collectives and messages that began while the block ran, parts of collectives left out.

    Args:
        events: the ledger's own list, which goes on growing until the block ends.
    """

    def __init__(self, events: list[Event]) -> None:
        self._all, self._since = events, len(events)
        self._until: int | None = None

    def end(self) -> None:
        """What begins from here on does not belong to the block."""
        self._until = len(self._all)

    @property
    def events(self) -> list[Event]:
        """The calls, in the order in which they began."""
        return [e for e in self._all[self._since : self._until] if e.parent < 0]

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.events)

    @property
    def sent(self) -> int:
        """Bytes that this rank put on the wire."""
        return sum(event.sent for event in self.events)

    def by_axis(self) -> dict[str, int]:
        """Bytes sent, by the axis of the group."""
        return self._sums("axis")

    def by_op(self) -> dict[str, int]:
        """Bytes sent, by operation."""
        return self._sums("op")

    def _sums(self, field: str) -> dict[str, int]:
        sums: dict[str, int] = {}
        for event in self.events:
            name = getattr(event, field)
            sums[name] = sums.get(name, 0) + event.sent
        return sums

    def __repr__(self) -> str:
        ops = [event.op for event in self.events]
        words = ", ".join(f"{ops.count(op)} {op}" for op in dict.fromkeys(ops))
        return f"{words or 'no calls'}: {self.sent:,} bytes sent"
