"""The critical path: the one chain through the ranks that made the step as long as it was.

Notebook: 14 Profiling and debugging (explain_trace).
Paper: Böhme and others, "Identifying the root causes of wait states in large-scale parallel
applications" (2010): walk backwards from the end, and change the rank where one waits.
Costs one walk back over the calls.
The production version also weighs what would be critical next (slack), kernel by kernel.

Whoever shortens something that is not on this path does not shorten the step.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from course_lib.trace.analysis.meetings import Meeting, meetings
from course_lib.trace.analysis.stretches import Trace
from course_lib.trace.intervals import Interval


@dataclass(frozen=True, slots=True)
class Segment:
    """One piece of the path.

    Attributes:
        rank: where the path runs; for communication, the rank that came last.
        what: `compute`, `copy`, `idle`, or the operation that everybody waited in.
        begin: seconds on the trace's clock.
        end: the same; the next segment begins there.
    """

    rank: int
    what: str
    begin: float
    end: float

    @property
    def seconds(self) -> float:
        """Its length."""
        return self.end - self.begin


class Hold(NamedTuple):
    """A moment at which a rank could go on, because a call ended in which it had stood still."""

    end: float
    begin: float  # when the last rank arrived: from then on the wire alone was waited for
    last: int
    what: str


def critical_path(trace: Trace) -> list[Segment]:
    """From the beginning of the window to its end, without a gap: the seconds add up to it.

    It ends on the rank that ended last. Backwards from there it stays on a rank until a call that
    the rank stood still in; the path came into that call with the rank that arrived last.
    """
    if not trace.ranks or trace.seconds <= 0:
        return []
    walk = _Walk(trace)
    found: list[Segment] = []
    rank, at = _last_to_end(trace), trace.end
    while at > trace.begin:
        hold = walk.hold_before(rank, at)
        if hold is None:
            found += walk.own_work(rank, trace.begin, at)
            break
        found += walk.own_work(rank, hold.end, at)
        begin = max(hold.begin, trace.begin)
        found.append(Segment(hold.last, hold.what, begin, hold.end))
        rank, at = hold.last, begin
    return _joined(sorted(found, key=lambda segment: segment.begin))


class _Walk:
    """What the walk asks about each rank."""

    def __init__(self, trace: Trace) -> None:
        self._doing = {rank: trace.doing(rank) for rank in trace.ranks}
        self._holds: dict[int, list[Hold]] = {rank: [] for rank in trace.ranks}
        exposed = {rank: trace.exposed(rank) for rank in trace.ranks}
        for meeting in meetings(trace):
            for rank in meeting.calls:
                hold = _hold(meeting, rank)
                if hold.begin < hold.end and _goes_on_until(exposed[rank], hold.end):
                    self._holds[rank].append(hold)
        for holds in self._holds.values():
            holds.sort()

    def hold_before(self, rank: int, at: float) -> Hold | None:
        """The last one that ended by `at`."""
        holds = self._holds[rank]
        place = bisect_right(holds, at, key=lambda hold: hold.end)
        return holds[place - 1] if place else None

    def own_work(self, rank: int, begin: float, end: float) -> list[Segment]:
        """What a rank did between two moments; nothing if they are one."""
        if begin >= end:
            return []
        pieces = self._doing[rank]
        first = bisect_right(pieces, begin, key=lambda piece: piece[1][1])
        last = bisect_left(pieces, end, key=lambda piece: piece[1][0])
        return [
            Segment(rank, kind, max(begin, piece[0]), min(end, piece[1]))
            for kind, piece in pieces[first:last]
        ]


def _hold(meeting: Meeting, rank: int) -> Hold:
    last = meeting.waited_for(rank)
    return Hold(meeting.calls[rank].end, meeting.calls[last].begin, last, meeting.name)


def _goes_on_until(intervals: list[Interval], moment: float) -> bool:
    """Whether one of these intervals covers the time just before `moment`."""
    place = bisect_left(intervals, moment, key=lambda interval: interval[0])
    return place > 0 and intervals[place - 1][1] >= moment


def _last_to_end(trace: Trace) -> int:
    ends = dict.fromkeys(trace.ranks, trace.begin)
    for stretch in trace.stretches:
        ends[stretch.rank] = max(ends[stretch.rank], min(stretch.end, trace.end))
    return max(ends, key=lambda rank: ends[rank])


def _joined(segments: Iterable[Segment]) -> list[Segment]:
    """Neighbours that are the same become one."""
    path: list[Segment] = []
    for segment in segments:
        if path and (path[-1].rank, path[-1].what) == (segment.rank, segment.what):
            segment = Segment(segment.rank, segment.what, path.pop().begin, segment.end)
        path.append(segment)
    return path
