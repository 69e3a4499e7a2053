"""The first difference of one rank: its two logs side by side, entry by entry.

Notebook: 14 Profiling and debugging (record and replay).
Source: as `diff` would, but results are looked up by their call, since two runs may wait for calls
in a different order.
Costs one pass over the shorter log.
The production version keeps a running digest of the whole log, and bisects.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal

from course_lib.replay.entries import Call, Done, Entry, Loss, Step
from course_lib.replay.recording import RankLog

Kind = Literal["program", "batch", "random", "input", "output", "loss"]


@dataclass(frozen=True)
class Own:
    """Where a rank differs first.

    Attributes:
        kind: `program`: it makes another call, or another step; `batch`, `random`: a step begins
            with another batch or other random states; `input`: a call reads other bits, though all
            that the rank had received was equal; `output`: a call gives other bits, though it read
            equal ones; `loss`.
        rank: global rank.
        step: the number of the step under way; -1 before the first.
        call: in the first run; None if it is not about a call, or if the run makes none more.
        other: the same in the second run.
        also: what more there is to say; of a step, whose random generators stand elsewhere.
    """

    kind: Kind
    rank: int
    step: int
    call: Call | None = None
    other: Call | None = None
    also: str = ""

    @property
    def place(self) -> tuple[int, int]:
        """For comparing ranks that run the same program: which step, and which call in it."""
        call = self.call or self.other
        first = self.kind in ("batch", "random")
        return self.step, -1 if first else call.number if call else 1 << 62


def first_of_rank(first: RankLog, second: RankLog) -> Own | None:
    """Where two logs of a rank differ first; None if they do not as far as both go."""
    walk = Walk(second)
    for entry in first.entries:
        if (found := walk.meets(entry)) or walk.over:
            return found
    return walk.beyond() if first.complete else None


class Walk:
    """How far a log has been compared with entries that come one after the other.

    Args:
        second: the log; the entries are those of the first run, on the same rank.

    Attributes:
        over: the log has ended although its program had not; nothing more can be compared.
    """

    def __init__(self, second: RankLog) -> None:
        self.second = second
        self.step, self.steps, self.calls = -1, 0, 0
        self.losses: Counter[int] = Counter()  # of each step
        self.over = False

    def meets(self, entry: Entry) -> Own | None:
        """The difference that this entry shows."""
        match entry:
            case Step():
                return self._step(entry)
            case Call():
                return self._call(entry)
            case Done():
                return self._done(entry)
            case Loss():
                return self._loss(entry)
        return None

    def beyond(self) -> Own | None:
        """What the second program does after the first one's end."""
        if self.calls < len(self.second.calls):
            return self._own("program", other=self.second.calls[self.calls])
        more = self.steps < len(self.second.steps)
        return self._own("program", also="it makes more steps") if more else None

    def _own(
        self, kind: Kind, call: Call | None = None, other: Call | None = None, also: str = ""
    ) -> Own:
        return Own(kind, self.second.rank, self.step, call, other, also)

    def _missing(self, call: Call | None = None, also: str = "") -> Own | None:
        """The second log has no such entry: its program makes none, or it was killed before."""
        self.over = not self.second.complete
        return None if self.over else self._own("program", call, also=also)

    def _step(self, mine: Step) -> Own | None:
        self.step = mine.number
        if self.steps == len(self.second.steps):
            return self._missing(also="it makes fewer steps")
        other = self.second.steps[self.steps]
        self.steps += 1
        if (mine.number, mine.calls) != (other.number, other.calls):
            also = (
                f"step {mine.number} begins after {mine.calls} calls in the first run, and "
                f"step {other.number} after {other.calls} in the second"
            )
            return self._own("program", also=also)
        stand_elsewhere = [
            name
            for name in dict.fromkeys((*mine.moved, *other.moved))
            if mine.random.get(name) != other.random.get(name)
        ]
        if mine.batch != other.batch:
            return self._own("batch", also=", ".join(stand_elsewhere))
        return self._own("random", also=", ".join(stand_elsewhere)) if stand_elsewhere else None

    def _call(self, mine: Call) -> Own | None:
        if self.calls == len(self.second.calls):
            return self._missing(mine)
        other = self.second.calls[self.calls]
        self.calls += 1
        if mine.what != other.what:
            return self._own("program", mine, other)
        return self._own("input", mine, other) if mine.given != other.given else None

    def _done(self, mine: Done) -> Own | None:
        other = self.second.results.get(mine.call, mine.taken)
        call = self.second.calls[mine.call]
        return self._own("output", call, call) if mine.taken != other else None

    def _loss(self, mine: Loss) -> Own | None:
        """A loss that only one run tells of is none: it may do so every tenth step."""
        place, others = self.losses[self.step], self.second.losses.get(self.step, [])
        self.losses[self.step] += 1
        differs = place < len(others) and mine.bits != others[place].bits
        return self._own("loss") if differs else None
