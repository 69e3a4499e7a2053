"""A trace: what every rank did when, as plain stretches of time of a few kinds.

Notebook: 14 Profiling and debugging (explain_trace).
Source: the lanes of Holistic Trace Analysis, which reads torch.profiler's traces: computation,
communication, memory copies, idle.
Costs one sort of the stretches; each question about a rank is linear in its own.
The production version keeps millions of kernels in columns and answers with SQL (Perfetto).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from course_lib.trace.intervals import Interval, clip, intersect, subtract, union

# What a rank can do, and who is named when several go on at once: communication and copies that
# computation hides cost nothing. What none of them covers is idle.
KINDS = ("compute", "communication", "copy")


@dataclass(frozen=True, slots=True)
class Stretch:
    """One thing that one rank did, without interruption.

    Attributes:
        rank: global rank.
        kind: one of KINDS, or `step` for a mark around a whole training step.
        name: the kernel, the span, the collective in torch.distributed's words, the step.
        begin: seconds on a clock that all ranks share.
        end: the same; of communication, when the data were there.
        group: for communication, global ranks of the group; () if that is not known.
        seq: for communication, the same number on all ranks that take part; -1 if not known.
        peer: for communication, global rank of a message's other end or of the root; -1 if none.
    """

    rank: int
    kind: str
    name: str
    begin: float
    end: float
    group: tuple[int, ...] = ()
    seq: int = -1
    peer: int = -1


class Trace:
    """Stretches of several ranks on one clock, looked at through a window of time.

    Args:
        stretches: in any order; they may overlap.
        ranks: all ranks, also those that did nothing; those of the stretches if None.
        window: what is looked at; from the first beginning to the last end if None.

    Attributes:
        stretches: in the order in which they begin.
        ranks: in order.
        begin: where the window begins, in seconds.
        end: where it ends.
    """

    def __init__(
        self,
        stretches: Iterable[Stretch],
        ranks: Iterable[int] | None = None,
        window: Interval | None = None,
    ) -> None:
        self.stretches = sorted(stretches, key=lambda stretch: (stretch.begin, stretch.end))
        self.ranks = sorted({s.rank for s in self.stretches} if ranks is None else ranks)
        first = min((s.begin for s in self.stretches), default=0.0)
        last = max((s.end for s in self.stretches), default=0.0)
        self.begin, self.end = (first, last) if window is None else window
        self._times: dict[tuple[int, str], list[Interval]] = {}
        for s in self.stretches:
            self._times.setdefault((s.rank, s.kind), []).append((s.begin, s.end))

    @property
    def seconds(self) -> float:
        """Length of the window."""
        return self.end - self.begin

    def cut(self, begin: float, end: float) -> Trace:
        """The same trace through a smaller window. Calls keep the times they really had."""
        kept = [s for s in self.stretches if s.begin < end and s.end > begin]
        return Trace(kept, self.ranks, (begin, end))

    def steps(self) -> dict[str, Interval]:
        """Training steps that are marked: from the first rank's beginning to the last one's end."""
        found: dict[str, Interval] = {}
        for mark in (s for s in self.stretches if s.kind == "step"):
            begin, end = found.get(mark.name, (mark.begin, mark.end))
            found[mark.name] = (min(begin, mark.begin), max(end, mark.end))
        return found

    def calls(self) -> list[Stretch]:
        """All communication that ends in the window."""
        return [
            s for s in self.stretches
            if s.kind == "communication" and self.begin < s.end <= self.end
        ]  # fmt: skip

    def of(self, rank: int, kind: str) -> list[Interval]:
        """When a rank did at least one thing of a kind: disjoint intervals inside the window."""
        return clip(union(self._times.get((rank, kind), ())), self.begin, self.end)

    def doing(self, rank: int) -> list[tuple[str, Interval]]:
        """The window of one rank without gap or overlap: each piece has one of KINDS, or `idle`."""
        left = [(self.begin, self.end)] if self.end > self.begin else []
        pieces: list[tuple[str, Interval]] = []
        for kind in KINDS:
            mine = intersect(self.of(rank, kind), left)
            pieces += [(kind, piece) for piece in mine]
            left = subtract(left, mine)
        pieces += [("idle", piece) for piece in left]
        return sorted(pieces, key=lambda piece: piece[1])

    def exposed(self, rank: int) -> list[Interval]:
        """When a rank communicated and computed nothing."""
        return subtract(self.of(rank, "communication"), self.of(rank, "compute"))
