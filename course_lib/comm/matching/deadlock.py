"""Who waits for whom, and whether that can end: known, not guessed from how long it lasts.

Notebook: none of its own; 14 Profiling and debugging tells deadlocks from logs in the same way.
Source: Holt, "Some Deadlock Properties of Computer Systems" (1972): reduce the graph of who waits
for whom, and what remains is stuck.
Costs a look at every waiting rank for each step of the reduction.
The production version does not see all ranks, and has time-outs instead.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from course_lib.comm.matching.post import Meeting
from course_lib.trace.hangs.desync import names


@dataclass(frozen=True)
class Deadlock:
    """Ranks that can never go on.

    Attributes:
        stuck: global rank to the call that it waits in.
        ended: ranks that these wait for and that have ended.
    """

    stuck: Mapping[int, Meeting]
    ended: tuple[int, ...]

    @property
    def text(self) -> str:
        """Who waits in what and for whom, in one sentence."""
        alike: dict[tuple[str, tuple[int, ...]], list[int]] = {}
        for rank, meeting in sorted(self.stuck.items()):
            alike.setdefault((meeting.name(rank), meeting.lacking), []).append(rank)
        each = [
            f"{names(ranks)} {_verb(ranks, 'waits', 'wait')} in {call} for {names(lacking)}"
            for (call, lacking), ranks in alike.items()
        ]
        if self.ended:
            each.append(f"{names(self.ended)} {_verb(self.ended, 'has', 'have')} ended")
        text = "; ".join(each)
        return f"{text[0].upper()}{text[1:]}."


def find_deadlock(waiting: Mapping[int, Meeting], computing: Collection[int]) -> Deadlock | None:
    """The ranks that can never go on, whatever the others do.

    Args:
        waiting: global rank to the call whose completion its program waits for. A rank that waits
            for several calls waits in the first of them that is not complete.
        computing: ranks whose programs are at work. All others have ended.

    Returns:
        None if every rank that waits may still be freed.
    """
    lacking = {meeting: set(meeting.lacking) for meeting in waiting.values()}
    coming, left = set(computing), dict(waiting)
    while more := {rank for rank, meeting in left.items() if lacking[meeting] <= coming}:
        coming |= more
        left = {rank: meeting for rank, meeting in left.items() if rank not in more}
    if not left:
        return None
    missed = {rank for meeting in left.values() for rank in lacking[meeting]}
    return Deadlock(left, tuple(sorted(missed - coming - left.keys())))


def _verb(ranks: Sequence[int], one: str, several: str) -> str:
    return one if len(ranks) == 1 else several
