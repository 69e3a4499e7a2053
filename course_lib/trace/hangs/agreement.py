"""Calls that ended, and were not the same on all ranks: what came out of them means nothing.

Notebook: 00 Ranks and the ledger (what `%%ranks` says about calls that do not fit).
Source: MUST and other checkers of MPI programs, which compare the signatures of matching calls.
Costs nothing while the program runs. When it has ended each rank makes a fingerprint of the calls
on each channel, and tells its calls only if fingerprints differ.
The production version (`TORCH_DISTRIBUTED_DEBUG=DETAIL`) compares shapes before every collective,
and waits for all ranks to do so.

Only what cannot be meant is said. Flat tensors fit others with as many elements; a message of bytes
fits every dtype; uneven parts of an all-to-all fit if all that was sent was received. Where ranks
have not made equally many calls on a channel, some may not be over, and nothing is concluded.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from course_lib.trace.event import Event
from course_lib.trace.hangs.desync import names
from course_lib.trace.ledger import Ledger

MESSAGES = ("send", "recv")
BYTES = "uint8"


@dataclass(frozen=True)
class Call:
    """What one rank called.

    Attributes:
        rank: global rank.
        label: `all_reduce`, `ring all_reduce`, `send`, ...
        reduction: `sum`, `max`, ...; "" if none.
        dtype: without "torch.".
        shape: of the tensor given.
        payload: bytes.
        root: global rank of a collective's root; -1 if none.
        surplus: bytes sent less bytes received, of an all-to-all.
        line: file and line of the program, as `train.py, line 12`.
    """

    rank: int
    label: str
    reduction: str
    dtype: str
    shape: tuple[int, ...]
    payload: int
    root: int
    surplus: int
    line: str

    def __str__(self) -> str:
        reduced = f" ({self.reduction})" if self.reduction else ""
        root = f" with root {self.root}" if self.root >= 0 else ""
        given = f" of {self.dtype} {list(self.shape)}" if self.dtype else ""
        return f"{self.label}{reduced}{given}{root}, {self.line}"


class Print(NamedTuple):
    """A rank's calls on one channel, in short.

    Attributes:
        calls: how many since the ledger began.
        sum: a checksum of the last ones; equal if the calls are.
        surplus: bytes of all-to-alls that went out and did not come in; over all ranks it is 0.
    """

    calls: int
    sum: int
    surplus: int


class Witness:
    """Reads a rank's ledger now and then, each event once.

    Args:
        ledger: this rank's.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger, self._events, self._read = ledger, ledger.events, 0
        self._counts: dict[str, int] = {}
        self._last: dict[str, list[Event]] = {}

    def look(self) -> dict[str, Print]:
        """Fingerprints of the channels with calls since the last look.

        Nothing, from then on, once the ledger has forgotten calls.
        """
        self._last = {}
        if self._ledger.events is not self._events:
            return {}
        for event in self._events[self._read :]:
            if (channel := _channel(event)) is not None:
                self._last.setdefault(channel, []).append(event)
        self._read = len(self._events)
        for channel, events in self._last.items():
            self._counts[channel] = self._counts.get(channel, 0) + len(events)
        return {name: self._print(name, events) for name, events in self._last.items()}

    def _print(self, channel: str, events: list[Event]) -> Print:
        told = "".join(f"{_signature(event)}" for event in events)
        surplus = sum(_surplus(event) for event in events)
        return Print(self._counts[channel], zlib.crc32(told.encode()), surplus)

    def calls(self) -> dict[str, list[dict[str, Any]]]:
        """The calls of the last look by channel, as JSON-ready data."""
        return {
            name: [asdict(self._call(event)) for event in events]
            for name, events in self._last.items()
        }

    def _call(self, event: Event) -> Call:
        message = event.op in MESSAGES
        return Call(
            event.rank, event.label, event.reduction, event.dtype, event.shape, event.payload,
            -1 if message else event.peer, _surplus(event), self._ledger.line_of(event),
        )  # fmt: skip


def may_differ(prints: Iterable[Mapping[str, Iterable[int]]]) -> bool:
    """Whether the ranks' fingerprints leave a doubt that they made the same calls."""
    found: dict[str, list[Print]] = {}
    for one in prints:
        for channel, told in one.items():
            found.setdefault(channel, []).append(Print(*told))
    return any(
        len({(each.calls, each.sum) for each in told}) > 1 or sum(each.surplus for each in told)
        for told in found.values()
    )


def find_disagreement(
    calls: Mapping[int, Mapping[str, list[dict[str, Any]]]], prints: Mapping[int, Mapping[str, Any]]
) -> str:
    """The first call that ended and was not the same on its ranks, in one sentence; "" if none.

    Args:
        calls: rank to what its witness told.
        prints: rank to its fingerprints.
    """
    for channel in sorted(_channels(calls), key=lambda name: ">" in name):
        ends = _ends(channel)
        made = {
            rank: [_call_of(each) for each in calls[rank].get(channel, [])]
            for rank in ends
            if rank in calls
        }
        counts = {prints[rank][channel][0] for rank in made if channel in prints[rank]}
        if len(made) < len(ends) or len(counts) != 1 or not all(made.values()):
            continue  # a rank is not asked, or has calls that are not over
        least = min(map(len, made.values()))
        for each in zip(*(some[len(some) - least :] for some in made.values()), strict=True):
            if not _fit(each):
                return _sentence(each, channel)
    return ""


# --- which calls belong together, and which fit --------------------------------------------------
def _channel(event: Event) -> str | None:
    """What calls are counted in: messages of one tag one way, or a group's calls of one algorithm.

    A collective of the backend and one that is built from messages pass each other by.
    """
    if event.op in MESSAGES:
        ends = (event.rank, event.peer) if event.op == "send" else (event.peer, event.rank)
        return f"{event.via}|{event.tag}|{ends[0]}>{ends[1]}"
    if event.parent >= 0:
        return None
    return f"{event.via}|{event.algorithm}|{','.join(map(str, event.group))}"


def _channels(calls: Mapping[int, Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(channel for made in calls.values() for channel in made))


def _ends(channel: str) -> list[int]:
    last = channel.rpartition("|")[2]
    return [int(rank) for rank in last.replace(">", ",").split(",")]


def _signature(event: Event) -> tuple[object, ...]:
    """What is the same on all ranks of a call, in programs that have nothing special."""
    if event.op in MESSAGES:
        return event.dtype, event.payload
    if event.op == "all_to_all":
        return event.op, event.dtype
    return event.op, event.reduction, event.dtype, event.payload, event.shape, event.peer


def _surplus(event: Event) -> int:
    return event.sent - event.received if event.op == "all_to_all" else 0


def _call_of(data: dict[str, Any]) -> Call:
    return Call(**{**data, "shape": tuple(data["shape"])})


def _fit(calls: tuple[Call, ...]) -> bool:
    """Whether these are one call."""
    if calls[0].label in MESSAGES:
        kinds = {call.dtype for call in calls} - {BYTES}
        return len(kinds) <= 1 and len({call.payload for call in calls}) == 1
    if len({(call.label, call.reduction, call.dtype, call.root) for call in calls}) > 1:
        return False
    if calls[0].label.endswith("all_to_all"):
        return sum(call.surplus for call in calls) == 0
    forms = {form for call in calls if len(form := _form(call.shape)) > 1}
    return len({call.payload for call in calls}) == 1 and len(forms) <= 1


def _form(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape without dims of one element, which do not change where anything lies."""
    return tuple(length for length in shape if length != 1)


def _sentence(calls: tuple[Call, ...], channel: str) -> str:
    """`A call ended that was not the same on its ranks: rank 0 called ...; rank 1 called ...`."""
    alike: dict[str, list[int]] = {}
    for call in calls:
        alike.setdefault(str(call), []).append(call.rank)
    each = "; ".join(f"{names(ranks)} called {text}" for text, ranks in alike.items())
    what = "A message" if ">" in channel else "A collective"
    return f"{what} ended that was not the same on its ranks, so what came out is wrong: {each}."
