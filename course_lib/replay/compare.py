"""Where two recorded runs part: the first step, the rank that it came from, and the operation.

Notebook: 14 Profiling and debugging (record and replay, divergence_bisect).
Paper: Lamport, "Time, Clocks, and the Ordering of Events in a Distributed System" (1978): what a
rank computes can depend on another rank only through what it has received.
Costs one pass over the logs, and no replay at all.
The production version (the deterministic replay of a large training) does this on suspicion alone.

A wrong number on one rank is on all of them a call later. Which one it came from can be told all
the same: a rank whose call *reads* other bits, while all that it had *received* until then was
equal, has made the difference itself. A rank whose call only *gives* other bits has got it from a
member of the group that has read other bits into the same call.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

from course_lib.replay import words
from course_lib.replay.entries import Call, Done, Loss, Step
from course_lib.replay.own import Own, first_of_rank
from course_lib.replay.recording import RankLog, Recording


@dataclass(frozen=True)
class Difference:
    """Where two runs part.

    Attributes:
        kind: that of the ranks' own differences (see `Own`), where `compute` stands for `input`;
            `sum`, if a call gives other bits though all its members read equal ones; `received`, if
            a member's log is missing that could tell.
        step: its number; -1 before the first.
        ranks: those that it came from.
        call: of the first of them; None if it is not about a call.
        reached: ranks that differ first in what they received.
        text: all this in sentences.
        environments: in what the machines differ, in a sentence; "" if in nothing that is recorded.
        damage: what is missing of the logs, in sentences.
    """

    kind: str
    step: int
    ranks: tuple[int, ...]
    call: Call | None
    reached: tuple[int, ...]
    text: str
    environments: str = ""
    damage: str = ""

    def of_a_replay(self) -> Difference:
        """The same, where the second run was stopped on purpose: that its logs end is no damage."""
        return replace(self, damage="")

    def __repr__(self) -> str:
        return " ".join(filter(None, (self.text, self.environments, self.damage)))


def first_difference(
    first: Recording, second: Recording, *, loss_within: float = 0.0
) -> Difference | None:
    """Where two runs part; None if they agree to the bit as far as both have gone.

    Runs on different numbers of ranks make different calls and add up in another order. Of those
    only the losses are compared, which must then be those of the whole batch on the lowest rank.

    Args:
        first: the run that the second is held against.
        second: it.
        loss_within: relative difference of losses that passes, for different numbers of ranks.
    """
    if first.world != second.world:
        return _by_loss(first, second, loss_within)
    both = [rank for rank in first.ranks if rank in second.ranks]
    found = [first_of_rank(first.ranks[rank], second.ranks[rank]) for rank in both]
    owns = [own for own in found if own is not None]
    if not owns:
        return None
    sent = _Given(first, second)
    causes = [own for own in owns if own.kind != "output" or not sent.explains(own)] or owns
    start = min(causes, key=lambda own: (own.place, own.rank))
    same = [own for own in causes if (own.kind, own.place) == (start.kind, start.place)]
    others = [own for own in causes if own not in same]
    reached = tuple(own.rank for own in owns if own not in causes)
    kind = sent.kind(start)
    return Difference(
        kind,
        start.step,
        tuple(own.rank for own in same),
        start.call,
        reached,
        words.difference(kind, same, others, reached),
        words.environments(first, second),
        words.damage(first, second),
    )


def unequal_steps(first: Recording, second: Recording) -> dict[int, list[tuple[int, bool]]]:
    """For each rank of both runs, its steps by number, and whether batch, calls or loss differ.

    Of two runs on as many ranks; as far as both have gone.
    """
    found = {}
    for rank in (rank for rank in first.ranks if rank in second.ranks):
        mine, other = (list(_by_step(run.ranks[rank])) for run in (first, second))
        found[rank] = [
            (number, bits != others)
            for (number, bits), (_, others) in zip(mine, other, strict=False)
        ]
    return found


def _by_step(log: RankLog) -> Iterator[tuple[int, list[Any]]]:
    """The number of each step, and all that it has to compare."""
    under_way: tuple[int, list[Any]] | None = None
    for entry in log.entries:
        if isinstance(entry, Step):
            if under_way is not None:
                yield under_way
            under_way = entry.number, [entry.batch]
        elif under_way is not None and isinstance(entry, Call):
            under_way[1].append((entry.what, entry.given))
        elif under_way is not None and isinstance(entry, Done | Loss):
            under_way[1].append(entry)
    if under_way is not None:
        yield under_way


def compared(first: Recording, second: Recording, *, loss_within: float = 0.0) -> str:
    """`first_difference` in words, also where there is none."""
    found = first_difference(first, second, loss_within=loss_within)
    return words.agreement(first, second) if found is None else str(found)


class _Given:
    """What the members of each call gave to it, in both runs.

    Args:
        first: a run.
        second: another one on as many ranks.
    """

    def __init__(self, first: Recording, second: Recording) -> None:
        self._first, self._second = _by_meeting(first), _by_meeting(second)

    def explains(self, own: Own) -> bool:
        """Whether another member gave other bits to the call that this rank got other ones from."""
        assert own.call is not None
        meeting = _meeting(own.call, own.rank)
        mine, other = self._first.get(meeting, {}), self._second.get(meeting, {})
        return any(rank in other and other[rank] != bits for rank, bits in mine.items())

    def kind(self, own: Own) -> str:
        """The kind of a difference that nothing else explains."""
        if own.kind != "output":
            return "compute" if own.kind == "input" else own.kind
        assert own.call is not None
        ends = own.call.group if own.call.op != "recv" else (own.call.peer, own.rank)
        meeting = _meeting(own.call, own.rank)
        both = self._first.get(meeting, {}).keys() & self._second.get(meeting, {}).keys()
        return "sum" if both.issuperset(ends) else "received"


Meeting = tuple[tuple[int, ...], int, int, int]  # group, number, and of a message both ends


def _meeting(call: Call, rank: int) -> Meeting:
    """What the calls of different ranks that belong together have in common."""
    if call.op == "send":
        return call.group, call.seq, rank, call.peer
    if call.op == "recv":
        return call.group, call.seq, call.peer, rank
    return call.group, call.seq, -1, -1


def _by_meeting(run: Recording) -> dict[Meeting, dict[int, str]]:
    """What each member gave, by its rank."""
    found: dict[Meeting, dict[int, str]] = {}
    for rank, log in run.ranks.items():
        for call in log.calls:
            found.setdefault(_meeting(call, rank), {})[rank] = call.given
    return found


# --- different numbers of ranks ------------------------------------------------------------------
def _by_loss(first: Recording, second: Recording, within: float) -> Difference | None:
    """The first step in which they differ, also where only one is a NaN or infinite."""
    for step, mine in first.losses.items():
        other = second.losses.get(step, mine)
        gap = abs(other.value - mine.value)
        if other.bits != mine.bits and not (isfinite(gap) and gap <= within * abs(mine.value)):
            text = words.losses(first.world, second.world, step, mine.value, other.value)
            return Difference("loss", step, (), None, (), text)
    return None
