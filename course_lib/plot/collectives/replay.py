"""What every rank held after every step of a collective, worked out from the recorded messages.

Paper: Patarasuk and Yuan, "Bandwidth optimal all-reduce" (2009), whose figures show these states.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from course_lib.plot.collectives.messages import Message, find_call, messages_of, talkers
from course_lib.trace import Event, Refusal, Timeline

# How often each rank's part is in a chunk, in the order of the group: (1, 1, 0, 0) is the sum of
# the first two ranks' parts, (0, 2, 0, 0) counts the second rank's part twice.
Held = tuple[int, ...]
Slot = tuple[int, int]  # (rank, chunk)

SUMS = ("all_reduce", "reduce_scatter", "reduce")
KNOWN = (*SUMS, "all_gather", "broadcast")


@dataclass(frozen=True)
class State:
    """Where things stand after one step.

    Attributes:
        held: what is in each chunk of each rank.
        messages: those of this step; none in the first state.
        added: chunks in which something was added to what was there, in this step.
        sent: bytes that each rank has sent so far.
    """

    held: dict[Slot, Held]
    messages: tuple[Message, ...]
    added: frozenset[Slot]
    sent: dict[int, int]


@dataclass(frozen=True)
class Replay:
    """A recorded collective, state by state.

    Attributes:
        op: `all_reduce`, ...
        label: with its algorithm: `ring all_reduce`.
        group: global ranks, in order.
        chunks: names of the chunks; (-1,) if messages carry the whole tensor.
        events: each rank's entry for the call, where it has one.
        states: before the first step, then after each.
        goal: what each slot must hold at the end; slots that may hold anything are left out.
    """

    op: str
    label: str
    group: tuple[int, ...]
    chunks: tuple[int, ...]
    events: dict[int, Event]
    states: tuple[State, ...]
    goal: dict[Slot, Held]

    def complete(self, state: State) -> set[Slot]:
        """The slots that hold in `state` what they must hold at the end."""
        return {slot for slot, held in self.goal.items() if state.held[slot] == held}

    def missing(self) -> list[Slot]:
        """The slots that do not hold at the end what they must."""
        done = self.complete(self.states[-1])
        return sorted(slot for slot in self.goal if slot not in done)


def replay(timeline: Timeline, op: str = "all_reduce", call: int = -1) -> Replay:
    """Works out what each rank held after each step of one collective.

    A chunk that arrives is *added* where it brings parts that are not there yet, and *copied* where
    it already holds all that is there. (The wire does not say which; for a correct algorithm this
    is what happens, and a wrong one ends with parts missing or counted twice.)

    Args:
        timeline: ledgers of all ranks, with a collective built from messages that carry a `step`.
            Messages outside any collective are taken if there is no such collective.
        op: the collective: one of all_reduce, reduce_scatter, reduce, all_gather, broadcast.
        call: which of the recorded calls, in the order of the ranks' programs; the last by
            default.

    Raises:
        Refusal: the records have no such call, or its messages carry no step.
    """
    if op not in KNOWN:
        raise Refusal(f"the steps of {op!r}", f"known: {', '.join(KNOWN)}", "no such collective")
    events = find_call(timeline, op, call)
    messages = messages_of(timeline, events, op)
    first = next(iter(events.values()), None)
    group = first.group if first else talkers(messages)
    chunks = tuple(sorted({message.chunk for message in messages}))
    root = first.peer if first and first.peer >= 0 else messages[0].source
    before, goal = _start_and_goal(op, group, chunks, root)
    states = tuple(_run(before, messages, group))
    label = first.label if first else op
    return Replay(op, label, group, chunks, events, states, goal)


def join(old: Held, new: Held) -> Held:
    """What a chunk holds after a message: a copy where that loses nothing, else the sum."""
    shared = any(a and b for a, b in zip(old, new, strict=True))
    if shared and all(b >= a for a, b in zip(old, new, strict=True)):
        return new
    return tuple(a + b for a, b in zip(old, new, strict=True))


def _run(
    held: dict[Slot, Held], messages: list[Message], group: tuple[int, ...]
) -> Iterator[State]:
    """All states: messages of one step are sent before any of them arrives."""
    sent = dict.fromkeys(group, 0)
    yield State(held, (), frozenset(), dict(sent))
    for step in sorted({message.step for message in messages}):
        now = tuple(message for message in messages if message.step == step)
        before, held, added = held, dict(held), set()
        for message in now:
            sent[message.source] += message.count
            if message.arrived:
                slot = (message.to, message.chunk)
                old, new = held[slot], before[message.source, message.chunk]
                held[slot] = join(old, new)
                if any(old) and held[slot] != new:
                    added.add(slot)
        yield State(held, now, frozenset(added), dict(sent))


def _start_and_goal(
    op: str, group: tuple[int, ...], chunks: tuple[int, ...], root: int
) -> tuple[dict[Slot, Held], dict[Slot, Held]]:
    """What every slot holds before the collective, and what it must hold after it."""
    own = {rank: tuple(int(rank == other) for other in group) for rank in group}
    nothing, everything = (0,) * len(group), (1,) * len(group)
    start: dict[Slot, Held] = {}
    goal: dict[Slot, Held] = {}
    for rank, chunk in ((rank, chunk) for rank in group for chunk in chunks):
        owner = group[chunk] if 0 <= chunk < len(group) else root
        source = {"all_gather": owner, "broadcast": root}.get(op, rank)
        start[rank, chunk] = own[source] if source == rank else nothing
        keeper = {"reduce_scatter": owner, "reduce": root}.get(op, rank)
        if keeper == rank:
            goal[rank, chunk] = everything if op in SUMS else own[source]
    return start, goal
