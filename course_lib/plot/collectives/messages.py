"""The messages of one collective, read from the ledgers of all ranks and matched in pairs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest

from course_lib.trace import Event, Refusal, Timeline, chunk_sizes, program_order


@dataclass(frozen=True)
class Message:
    """One chunk on its way from rank to rank, in however many messages it was sent.

    Attributes:
        source: global rank that sent it.
        to: global rank that it was sent to.
        step: round of the algorithm.
        chunk: which chunk of the tensor; -1 for the whole tensor.
        count: its bytes.
        arrived: whether the receiver's ledger has it, and has it finished.
    """

    source: int
    to: int
    step: int
    chunk: int
    count: int
    arrived: bool


def find_call(timeline: Timeline, op: str, call: int) -> dict[int, Event]:
    """Each rank's entry for one call of a collective that is built from messages, by rank.

    Args:
        timeline: ledgers of all ranks.
        op: the collective.
        call: which of its calls, in the order of the ranks' programs.

    Returns:
        The entries; none at all if the records have no such collective.

    Raises:
        Refusal: there are fewer calls.
    """
    made = [
        {(e.group, e.seq): e for e in book.events if e.op == op and e.algorithm and e.parent < 0}
        for book in timeline.ledgers
    ]
    order = program_order([list(mine) for mine in made])
    if not order:
        return {}
    if not -len(order) <= call < len(order):
        found = f"{len(order)} recorded calls"
        raise Refusal(f"call {call} of {op}", found, "calls are counted from 0, or from the end")
    return {mine[order[call]].rank: mine[order[call]] for mine in made if order[call] in mine}


def messages_of(timeline: Timeline, events: dict[int, Event], op: str) -> list[Message]:
    """The chunks that were sent in a call, in order of step, sender and chunk.

    Args:
        timeline: ledgers of all ranks.
        events: the call, from `find_call`; if it is empty, messages outside any collective count.
        op: the collective, for the error.

    Raises:
        Refusal: there are no messages, or some carry no step.
    """
    pairs = list(_pairs(timeline, events))
    if not pairs or any(sent.step < 0 for sent, _ in pairs):
        raise Refusal(
            f"the steps of {op}",
            f"{len(pairs)} messages, {sum(sent.step >= 0 for sent, _ in pairs)} with a step",
            "steps are drawn from messages that carry one: isend(..., step=0, chunk=3)",
        )
    pieces: dict[tuple[int, int, int, int], list[tuple[int, bool]]] = {}
    for sent, arrived in pairs:
        key = (sent.step, sent.rank, sent.chunk, sent.peer)
        pieces.setdefault(key, []).append((sent.sent or sent.payload, arrived))
    sizes = _chunk_bytes(events, max(sent.chunk for sent, _ in pairs) + 1)
    return [
        Message(source, to, step, chunk, count, all(arrived for _, arrived in parts))
        for (step, source, first, to), parts in sorted(pieces.items())
        for chunk, count in _unpack(first, sum(count for count, _ in parts), sizes)
    ]


def _pairs(timeline: Timeline, events: dict[int, Event]) -> Iterator[tuple[Event, bool]]:
    """Each message's send, and whether it was received: between two ranks, messages keep order."""
    sends: dict[tuple[int, int], list[Event]] = {}
    receives: dict[tuple[int, int], list[Event]] = {}
    for ledger in timeline.ledgers:
        parent = events[ledger.rank].number if ledger.rank in events else -1
        for part in ledger.events:
            if part.parent == parent and part.op == "send":
                sends.setdefault((part.rank, part.peer), []).append(part)
            elif part.parent == parent and part.op == "recv":
                receives.setdefault((part.peer, part.rank), []).append(part)
    for pair, out in sends.items():
        into = receives.get(pair, [])[: len(out)]
        for sent, received in zip_longest(out, into):
            yield sent, received is not None and received.end is not None


def _chunk_bytes(events: dict[int, Event], parts: int) -> list[int]:
    """Bytes of each chunk of the tensor; empty where messages carry the whole tensor."""
    event = next(iter(events.values()), None)
    if event is None or parts == 0:
        return []
    return [n * event.item for n in chunk_sizes(event.payload // event.item, parts)]


def _unpack(first: int, count: int, sizes: list[int]) -> Iterator[tuple[int, int]]:
    """The chunks in a message of `count` bytes that begins with chunk `first`, and their bytes.

    Halving and doubling send several neighbouring chunks at once; -1 is all of them.
    """
    chunk = max(first, 0)
    if not sizes or count <= sizes[chunk]:
        yield first, count
        return
    while count > 0 and chunk < len(sizes):
        yield chunk, min(count, sizes[chunk])
        count -= sizes[chunk]
        chunk += 1


def talkers(messages: list[Message]) -> tuple[int, ...]:
    """The ranks that messages go between."""
    return tuple(sorted({m.source for m in messages} | {m.to for m in messages}))
