"""The judge's inbox: what a rank says costs the judge no more than it has said is enough."""

from __future__ import annotations

import json
import socket

import pytest

from course_lib.grade.judge import inbox
from course_lib.grade.judge.inbox import Garbled, Inbox
from course_lib.ranks.start.channel import HEADER, Channel


def message(told: object, raw: int = 0) -> bytes:
    text = json.dumps(told).encode()
    return HEADER.pack(len(text), raw) + text + bytes(raw)


def test_messages_come_whole_and_in_order_however_they_are_cut() -> None:
    mine, theirs = Channel.pair()
    box = Inbox(mine)
    whole = message({"say": "where"}) + message({"say": "done"}, raw=3)
    taken = []
    for byte in whole:
        socket.socket.send(theirs._sock, bytes([byte]))
        taken += box.take()
    assert taken == [({"say": "where"}, b""), ({"say": "done"}, bytes(3))]
    theirs.close()
    assert box.take() == [] and box.closed


class Endless:
    """A socket whose other end sends faster than it is read."""

    def __init__(self, piece: bytes) -> None:
        self._piece = piece

    def recv(self, *_: int) -> bytes:
        return self._piece


@pytest.mark.parametrize(
    "piece",
    [message({"say": "where"}), message({}, raw=1000), HEADER.pack(2, 1 << 18) + b"{}"],
    ids=["reports", "bytes", "half a message"],
)
def test_a_rank_that_never_stops_talking_is_refused(
    piece: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox, "MOST", 1 << 20)
    box = Inbox(Channel.pair()[0])
    monkeypatch.setattr(box, "_sock", Endless(piece))
    with pytest.raises(Garbled):
        box.take()
    assert len(box._data) <= (1 << 20) + len(piece)


def test_all_that_is_parsed_counts_not_only_each_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox, "MOST_TEXT", 100)
    mine, theirs = Channel.pair()
    box = Inbox(mine)
    for _ in range(2):
        theirs.send({"say": "x" * 30})
    assert len(box.take()) == 2
    theirs.send({"say": "x" * 30})
    with pytest.raises(Garbled, match="after 82 of others"):
        box.take()
