"""What a benchmark yields: one number of ours beside the same number of a peer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

HEAD = ("what", "world", "size", "ours", "peer", "unit", "peer is", "ratio", "note")


@dataclass(frozen=True)
class Row:
    """One comparison.

    Attributes:
        bench: the benchmark's name.
        what: what was measured: `all_reduce`, `start`, `warm_cell_ms_p50`, ...
        world: how many ranks.
        size: bytes of the tensor, or whatever the size of the task is; 0 if it has none.
        ours: our number, in `unit`.
        peer: the peer's, from the same run; None where there is none.
        peer_name: who the peer is.
        unit: `ms`, `s`, `MB`, ...; less is better.
        note: for people, not in the JSON.
    """

    bench: str
    what: str
    world: int
    size: int
    ours: float
    peer: float | None
    peer_name: str
    unit: str
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """Ours by the peer's: below 1 is better; None without a peer, or where it is 0."""
        return self.ours / self.peer if self.peer else None

    def to_json(self) -> str:
        """The row as one line of JSON."""
        ratio = None if self.ratio is None else round(self.ratio, 4)
        fields = {**asdict(self), "ratio": ratio}
        del fields["note"]
        return json.dumps(fields)

    def cells(self) -> tuple[str, ...]:
        """The row as text, in the order of `HEAD`."""
        return (
            self.what, str(self.world), _size(self.size), f"{self.ours:.4g}",
            "" if self.peer is None else f"{self.peer:.4g}", self.unit, self.peer_name,
            "" if self.ratio is None else f"{self.ratio:.3g}", self.note,
        )  # fmt: skip


def _size(count: int) -> str:
    """`4 KiB` for 4096; bytes that are no round number as they are."""
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= factor and count % factor == 0:
            return f"{count // factor} {unit}"
    return str(count) if count else ""


def table(rows: Sequence[Row]) -> str:
    """The rows as a Markdown table with aligned columns."""
    lines = [HEAD, *(row.cells() for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEAD))]
    text = [
        "| " + " | ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)) + " |"
        for line in lines
    ]
    text.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(text)
