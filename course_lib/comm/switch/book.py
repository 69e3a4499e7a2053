"""The switch's book: every call of every rank, in the order in which they came.

Notebook: none of its own.
Source: the ledger of trace, kept where no rank can reach it.
Costs one Event a call.
The production version is the counters of a network's switches.
"""

from __future__ import annotations

from typing import NamedTuple

from course_lib.comm.matching import Meeting, Post
from course_lib.comm.switch.frames import Ask
from course_lib.trace import Event, wire_bytes


class Booked(NamedTuple):
    """A call as the switch saw it.

    Attributes:
        event: operation, group, bytes by the formulas, when it came and when it was over; its
            number is that of the event in the rank's own ledger, as the rank says.
        known: how many events that ledger had when the call was made, as the rank says.
        line: the program's line that made the call, as the rank says.
    """

    event: Event
    known: int
    line: str


def booked(ask: Ask, meeting: Meeting, now: float) -> Booked:
    """The entry of a call that has come at `now`."""
    post, group = ask.post, meeting.group
    payload = post.numel * post.item * (len(group) if post.op == "all_gather" else 1)
    sent, received = _bytes(post, group, payload)
    peer = post.peer if post.root < 0 else group[post.root]
    event = Event(
        post.rank, ask.event, post.op, post.axis, group, meeting.seq, payload, sent, received, now,
        shape=(post.numel,), dtype=post.dtype, item=post.item, peer=peer,
        reduction=post.reduction, via=f"switch {post.group}", tag=post.tag,
    )  # fmt: skip
    return Booked(event, ask.known, ask.line)


def _bytes(post: Post, group: tuple[int, ...], payload: int) -> tuple[int, int]:
    """Bytes that the rank sends and receives."""
    index = group.index(post.rank)
    if post.op == "all_to_all":
        given, taken = sum(post.given) - post.given[index], sum(post.taken) - post.taken[index]
        return given * post.item, taken * post.item
    if post.op in ("send", "recv"):
        return (payload, 0) if post.op == "send" else (0, payload)
    if post.op == "split":
        return 0, 0
    turned = index if post.root < 0 else (index - post.root) % len(group)
    return wire_bytes(post.op, payload, len(group), turned, post.item)
