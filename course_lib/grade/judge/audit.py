"""Holds a rank's ledger against the switch's book: what it says of calls must be what was carried.

A ledger knows more than the switch (mesh axes, which messages make up an algorithm), but it lies in
the process under test. So each of its calls must be one that the switch has carried, in the same
order, with the same bytes and the same ends, and the other way round. Times of the rank's own are
taken where they agree with that order: no call begins before what the switch heard of earlier, none
ends before it was carried out. Memory by class, axes, and when a program waited remain what the
rank says.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from course_lib.comm.switch import Booked, Mark
from course_lib.grade.faults import Fault, RunFault
from course_lib.trace import Event, Ledger

CAUSE = "calls go through course_lib.comm, which books each of them"


def audited(ledger: Ledger, book: Sequence[Booked | Mark]) -> Ledger:
    """The ledger, with times that agree with the switch's book.

    Args:
        ledger: as its rank has sent it; it is changed.
        book: what the switch saw of this rank, in order.

    Raises:
        RunFault: the two do not say the same.
    """
    carried: dict[int, list[Event]] = {}
    for entry in book:
        if isinstance(entry, Booked) and entry.event.op != "split":
            carried.setdefault(entry.event.number, []).append(entry.event)
    for number in carried:
        if not 0 <= number < len(ledger.events):
            _forged(ledger, f"made a call that is not in its ledger: {carried[number][0].op}")
    parts: dict[int, list[Event]] = {}
    for event in ledger.events:
        parts.setdefault(event.parent, []).append(event)
    for number, event in enumerate(ledger.events):
        if number in carried:
            _compare(ledger, event, carried[number])
        else:
            _sum_up(ledger, event, parts.get(number, []))
    _check_order(ledger, book, list(carried))
    return ledger


def _compare(ledger: Ledger, event: Event, posts: list[Event]) -> None:
    """One call and what was carried for it: several pieces, if it is a stream."""
    first = posts[0]
    same = event.algorithm or (event.op, event.peer) == (first.op, first.peer)
    if not same or event.group != first.group or {each.via for each in posts} != {event.via}:
        _forged(ledger, f"has {_call(event)} in its ledger, where {_call(first)} was carried")
    sums = sum(each.sent for each in posts), sum(each.received for each in posts)
    if sums != (event.sent, event.received):
        said = f"{event.sent} bytes sent and {event.received} received"
        _forged(ledger, f"says {said} by {_call(event)}; carried were {sums[0]} and {sums[1]}")
    size = sum(each.payload for each in posts), first.item
    if not event.algorithm and size != (event.payload, event.item):
        _forged(ledger, f"says {event.payload} bytes for {_call(event)}; carried were {size[0]}")
    ends = [each.end for each in posts if each.end is not None]
    if event.end is not None and len(ends) < len(posts):
        _forged(ledger, f"says that {_call(event)} has ended")
    if event.end is not None:
        event.end = max(event.end, *ends)
    if event.arrived is not None:
        event.arrived = max(ends, default=None)


def _sum_up(ledger: Ledger, event: Event, parts: list[Event]) -> None:
    """A call that nothing was carried for: one that is built from others, which come after it."""
    sums = sum(each.sent for each in parts), sum(each.received for each in parts)
    if not event.algorithm or sums != (event.sent, event.received):
        _forged(ledger, f"has a call in its ledger that was never made: {_call(event)}")


def _check_order(ledger: Ledger, book: Sequence[Booked | Mark], first: list[int]) -> None:
    """Calls and marks came to the switch in the order in which the ledger has them.

    Args:
        ledger: the rank's; its calls and marks begin in that order afterwards.
        book: what the switch saw.
        first: numbers of the calls, in the order in which their first posts came.
    """
    if first != sorted(first):
        _forged(ledger, "has calls in its ledger in another order than they were made")
    spans, made, last = iter(ledger.spans), 0, 0.0
    for entry in book:
        if isinstance(entry, Booked):
            number = entry.event.number
            if made == len(first) or number != first[made]:
                continue  # a further piece, or a split
            made += 1
            event = ledger.events[number]
            if entry.known - number not in (0, 1):
                _forged(ledger, f"had {_call(event)} in its ledger before it was made")
            event.begin = last = min(max(last, event.begin), max(last, entry.event.begin))
            continue
        span = next(spans, None)
        if span is None or span.name != entry.name:
            _forged(ledger, f"told of {entry.name!r}, which is not in its ledger at that place")
        if any(number < entry.known for number in first[made:]):
            _forged(ledger, f"had a call in its ledger before {entry.name!r} that was made after")
        moment = min(max(last, span.end), max(last, entry.at))
        span.begin, span.end = moment if span.begin == span.end else span.begin, moment
        last = moment
    if next(spans, None) is not None:
        _forged(ledger, "has a mark in its ledger that was never told")


def _call(event: Event) -> str:
    return f"{event.label} on {list(event.group)}"


def _forged(ledger: Ledger, what: str) -> NoReturn:
    raise RunFault(Fault("tampering", f"rank {ledger.rank} {what}", (ledger.rank,), cause=CAUSE))
