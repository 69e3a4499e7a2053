"""Calls of different ranks that belong together, and who was waited for in each.

Notebook: 14 Profiling and debugging (explain_trace: the straggler).
Source: the late-sender and wait-at-barrier patterns of Scalasca (Geimer and others, "The Scalasca
performance toolset architecture", 2010).
Costs one look at each call.
The production version compares the arrival times of all ranks while the job runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from course_lib.trace.analysis.stretches import Stretch, Trace
from course_lib.trace.intervals import Interval, clip, length, union

MESSAGES = ("send", "recv")
FROM_ROOT = ("broadcast", "scatter")
TO_ROOT = ("reduce", "gather")


@dataclass(frozen=True)
class Meeting:
    """One collective, or one message, as the ranks that took part in it saw it.

    Attributes:
        name: the operation; of a message, `send`.
        calls: rank to its call.
    """

    name: str
    calls: dict[int, Stretch]

    def waited_for(self, rank: int) -> int:
        """The rank whose arrival this one's result had to wait for, which may be itself.

        It is the last to arrive of those whose data the rank needs: of all in an all-reduce, of the
        root in a broadcast. Who came after the rank was through cannot have held it up.
        """
        mine = self.calls[rank]
        needed = {rank} | (self._sources(mine) & self.calls.keys())
        in_time = [r for r in needed if r == rank or self.calls[r].begin < mine.end]
        return max(in_time, key=lambda r: (self.calls[r].begin, r == rank))

    def _sources(self, mine: Stretch) -> set[int]:
        """The ranks without which this call cannot end; the root of old traces is not known."""
        if mine.name in FROM_ROOT and mine.peer >= 0:
            return {mine.peer}
        if mine.name in TO_ROOT and mine.peer not in (-1, mine.rank):
            return set()
        return set(self.calls)


def meetings(trace: Trace) -> list[Meeting]:
    """All collectives and messages in the window, in the order in which the first rank came.

    A call of which nothing says with whom it was made is left out.
    """
    found: dict[tuple[Any, ...], Meeting] = {}
    for call in trace.calls():
        key = _key(call)
        if key is not None:
            name = "send" if call.name in MESSAGES else call.name
            found.setdefault(key, Meeting(name, {})).calls[call.rank] = call
    return list(found.values())


def _key(call: Stretch) -> tuple[Any, ...] | None:
    """What is the same on all ranks of a meeting."""
    if call.seq < 0:
        return None
    if call.name not in MESSAGES:
        return (call.group, call.name, call.seq)
    if call.peer < 0:
        return None
    ends = (call.rank, call.peer) if call.name == "send" else (call.peer, call.rank)
    return (call.group, *ends, call.seq)


class Wait(NamedTuple):
    """A rank stood still in a meeting.

    Attributes:
        rank: the one that stood still.
        last: the one that it waited for.
        meeting: the meeting's place among all.
        times: when it communicated, had nothing to compute, and the last had not come.
    """

    rank: int
    last: int
    meeting: int
    times: list[Interval]


def waits(trace: Trace) -> list[Wait]:
    """Everybody who lost time to somebody, meeting by meeting."""
    exposed = {rank: trace.exposed(rank) for rank in trace.ranks}
    found = []
    for number, meeting in enumerate(meetings(trace)):
        for rank, call in meeting.calls.items():
            last = meeting.waited_for(rank)
            if times := clip(exposed[rank], call.begin, meeting.calls[last].begin):
                found.append(Wait(rank, last, number, times))
    return found


@dataclass(frozen=True)
class Lateness:
    """How long others stood still because one rank came last.

    Attributes:
        rank: the one that was waited for.
        seconds: what the others lost together: they communicated, and had nothing to compute.
        meetings: in how many meetings somebody lost time to it.
    """

    rank: int
    seconds: float
    meetings: int


def lateness(trace: Trace) -> list[Lateness]:
    """All ranks, the one that cost the others the most time first: that one is the straggler."""
    lost: dict[int, dict[int, list[Interval]]] = {rank: {} for rank in trace.ranks}
    held: dict[int, set[int]] = {rank: set() for rank in trace.ranks}
    for wait in waits(trace):
        lost[wait.last].setdefault(wait.rank, []).extend(wait.times)
        held[wait.last].add(wait.meeting)
    found = [
        # A rank that stands in two calls at once waits once.
        Lateness(rank, sum(length(union(times)) for times in lost[rank].values()), len(held[rank]))
        for rank in trace.ranks
    ]
    return sorted(found, key=lambda late: (-late.seconds, late.rank))
