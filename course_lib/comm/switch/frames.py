"""What a rank and the switch say to each other: one frame for a call, one for its end.

Notebook: none of its own.
Source: length-prefixed frames, as in most protocols over a stream.
Costs 150 bytes for a call and 28 for its end, on a socket of this machine.
The production version packs the fields of a call into bits.

A rank is not trusted: what it sends is JSON, and every field is checked.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from course_lib.comm.matching import Post

LENGTH = struct.Struct("<I")
END = struct.Struct("<qdqI")  # number of the call, when it ended, new group, bytes of text after it
MOST = 1 << 20  # bytes of one frame
# What travels as bytes. A quantized tensor's bytes are no numbers: making one of them ends torch.
DTYPES = {
    str(kind).removeprefix("torch."): kind
    for name, kind in vars(torch).items()
    if isinstance(kind, torch.dtype) and not name.startswith(("qint", "quint"))
}


class Garbled(ValueError):
    """A rank sent something that is no call."""


class Ask(NamedTuple):
    """A call as it travels.

    Attributes:
        post: what is asked for; its rank is the sender's.
        gives: bytes from the arena's beginning to what is given.
        gets: the same, to where the result goes.
        takes: elements of the result.
        event: number of the event in the rank's ledger that this call belongs to.
        known: how many events that ledger has by now.
        line: the program's line that made the call.
    """

    post: Post
    gives: int
    gets: int
    takes: int
    event: int
    known: int
    line: str


class Mark(NamedTuple):
    """A moment that a rank's ledger names, told when it happens.

    Attributes:
        name: its name.
        known: how many events the ledger has by then.
        at: when the switch heard of it, in seconds on the machine's monotonic clock.
    """

    name: str
    known: int
    at: float = 0.0


class End(NamedTuple):
    """The end of a call.

    Attributes:
        number: which of the rank's calls, from 0.
        at: when, in seconds on the machine's monotonic clock.
        group: number of the new group, after a split.
        refused: why it was not carried out; "" if it was.
    """

    number: int
    at: float
    group: int
    refused: str


def pack_ask(ask: Ask) -> bytes:
    """The frame of a call."""
    text = json.dumps([*ask.post[1:], *ask[1:]]).encode()
    return LENGTH.pack(len(text)) + text


def pack_mark(mark: Mark) -> bytes:
    """The frame of a mark."""
    text = json.dumps([mark.name, mark.known]).encode()
    return LENGTH.pack(len(text)) + text


def pack_end(end: End) -> bytes:
    """The frame of a call's end."""
    text = end.refused.encode()
    return END.pack(end.number, end.at, end.group, len(text)) + text


def frames_in(data: bytearray, rank: int) -> Iterator[Ask | Mark]:
    """The calls and marks that have come whole; they are taken out of `data`.

    Raises:
        Garbled: a frame that is neither.
    """
    while len(data) >= LENGTH.size:
        (length,) = LENGTH.unpack_from(data)
        end = LENGTH.size + length
        if length > MOST:
            raise Garbled(f"a frame of {length} bytes")
        if len(data) < end:
            return
        body = bytes(data[LENGTH.size : end])
        del data[:end]
        yield _said(body, rank)


def ends_in(data: bytearray) -> Iterator[End]:
    """The ends that have come whole; they are taken out of `data`."""
    while len(data) >= END.size:
        number, at, group, length = END.unpack_from(data)
        if len(data) < END.size + length:
            return
        text = bytes(data[END.size : END.size + length]).decode()
        del data[: END.size + length]
        yield End(number, at, group, text)


CALL = (str, int, str, int, int, str, int, int, int, list, list, list, str, *[int] * 5, str)
MARK = (str, int)


def _said(body: bytes, rank: int) -> Ask | Mark:
    try:
        told: list[Any] = json.loads(body)
    except (ValueError, RecursionError):
        raise Garbled("a frame that is not JSON") from None
    form = tuple(map(type, told)) if isinstance(told, list) else ()
    if form == MARK:
        return Mark(*told)
    if form != CALL:
        raise Garbled("a frame of another form")
    parts: list[Any] = [tuple(each) if type(each) is list else each for each in told]
    numbers = [each for part in parts if type(part) is tuple for each in part]
    numbers += [each for each in parts if type(each) is int]
    if not all(type(each) is int and abs(each) < 1 << 62 for each in numbers):
        raise Garbled("a number out of range")
    ask = Ask(Post(rank, *parts[:13]), *parts[13:])
    if ask.post.dtype and ask.post.dtype not in DTYPES:
        raise Garbled(f"a dtype that is not known: {ask.post.dtype[:20]}")
    return ask
