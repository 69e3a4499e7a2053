"""Our own timeline, written as a Chrome trace and read again, also of a real run."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from course_lib.comm import Group, all_reduce, barrier, recv, ring_all_reduce, send
from course_lib.trace import (
    Ledger,
    Refusal,
    Span,
    Timeline,
    Trace,
    explain,
    open_traces,
    read_traces,
)
from course_lib.trace.analysis.meetings import meetings


def written(rank: int) -> Ledger:
    """A step of 8 seconds with a blocking call inside a span, and one that arrived early."""
    ledger = Ledger(rank)
    late = ledger.begin("all_reduce", axis="dp", group=(0, 1), payload=8, algorithm="ring")
    with ledger.within(late):
        ledger.finish(ledger.begin("send", axis="dp", group=(0, 1), payload=4, peer=1 - rank))
    early = ledger.begin("broadcast", axis="dp", group=(0, 1), payload=8, peer=1)
    ledger.finish(early)
    late.begin, late.waited, late.end = 102.0 + rank, 102.0 + rank, 104.0
    early.begin, early.arrived, early.waited, early.end = 105.0, 106.0, 106.5, 106.75
    ledger.begin("barrier", axis="dp", group=(0, 1), payload=0)
    ledger.spans = [
        Span(rank, "step 3", 100.0, 108.0),
        Span(rank, "backward", 101.0, 107.0),
        Span(rank, "ready head.weight", 101.5, 101.5),
        Span(rank, "step", 107.0, 107.5),
    ]
    return ledger


def read(*ledgers: Ledger) -> Trace:
    trace: Trace = read_traces(json.loads(Timeline(ledgers).chrome_trace()))
    return trace


def test_a_blocking_call_is_not_hidden_by_the_span_around_it() -> None:
    trace = read(written(0), written(1))
    assert trace.steps() == {"step 3": (0.0, 8.0)}
    assert trace.of(0, "compute") == [(1.0, 2.0), (4.0, 6.5), (6.75, 7.5)]
    assert trace.of(0, "communication") == [(2.0, 4.0), (5.0, 6.0)]
    assert trace.exposed(0) == [(2.0, 4.0)], "the broadcast arrived while the rank worked"
    assert trace.exposed(1) == [(3.0, 4.0)]


def test_calls_keep_what_they_are() -> None:
    calls = read(written(0), written(1)).calls()
    assert [(c.rank, c.name, c.seq, c.peer) for c in calls] == [
        (0, "all_reduce", 0, -1), (1, "all_reduce", 0, -1),
        (0, "broadcast", 1, 1), (1, "broadcast", 1, 1),
    ]  # fmt: skip
    assert all(call.group == (0, 1) for call in calls)
    found = explain(read(written(0), written(1)))
    assert found.straggler is not None
    assert (found.straggler.rank, found.straggler.seconds) == (1, 1.0)
    assert found.shares[0].exposed == 2.0 and found.shares[0].hidden == 1.0


def test_recordings_without_the_moment_of_waiting_still_open() -> None:
    document = json.loads(Timeline([written(0)]).chrome_trace())
    for event in document["traceEvents"]:
        event["args"].pop("waited", None)
    assert read_traces(document).of(0, "compute") == [(1.0, 7.5)]


def test_files(tmp_path: Path) -> None:
    text = Timeline([written(0)]).chrome_trace()
    plain, packed = tmp_path / "trace.json", tmp_path / "trace.json.gz"
    plain.write_text(text)
    packed.write_bytes(gzip.compress(text.encode()))
    assert open_traces(plain).stretches == open_traces(str(packed)).stretches != []
    for whole in (plain, packed):
        part = tmp_path / f"part of {whole.name}"
        part.write_bytes(whole.read_bytes()[:40])
        with pytest.raises(Refusal, match=f"{part.name}\nfound: 40 bytes that are no JSON"):
            open_traces(part)
    damaged = bytearray(packed.read_bytes())
    damaged[-6] ^= 1  # its checksum
    for data in (damaged, b"[" * 100_000):
        plain.write_bytes(data)
        with pytest.raises(Refusal, match="that are no JSON"):
            open_traces(plain)


@pytest.mark.parametrize("document", [{}, {"traceEvents": 3}, {"events": []}, 3])
def test_what_is_no_trace_is_refused(document: Any) -> None:
    with pytest.raises(ValueError, match="traceEvents"):
        read_traces(document)


@pytest.mark.parametrize("event", [
    3, {}, {"ph": 1}, {"ph": "X", "tid": 0, "name": "aten::mm", "ts": 1.0},
    {"ph": "X", "tid": 0, "name": "aten::mm", "ts": "1", "dur": 2},
    {"ph": "X", "tid": 0, "name": "aten::mm", "ts": 1, "dur": float("nan")},
])  # fmt: skip
def test_an_event_that_is_none_is_shown_with_its_file(event: object, tmp_path: Path) -> None:
    for more in ({}, {"schemaVersion": 1}):
        path = tmp_path / "trace_3.json"
        path.write_text(json.dumps({"traceEvents": [{"ph": "i"}, event], **more}))
        with pytest.raises(Refusal, match=r"(?s)trace_3\.json\nfound: event 1: .*`dur`"):
            open_traces(path)


@pytest.mark.parametrize("document", [
    {"traceEvents": [{"ph": "X", "tid": "calls", "name": "send", "ts": 0, "dur": 1, "pid": 0}]},
    {"traceEvents": [], "schemaVersion": 1, "distributedInfo": None},
])  # fmt: skip
def test_what_nobody_writes_is_refused(document: Any) -> None:
    with pytest.raises(Refusal, match="document 0"):
        read_traces(document)


def train(group: Group) -> dict[str, Any]:
    """Two steps; rank 1 comes to the second all-reduce only when rank 0 has begun it."""
    gradient, told = torch.ones(1000, dtype=torch.float64), torch.zeros(1)
    barrier(group)
    place = group.ledger.place()
    for number in range(2):
        with group.ledger.span(f"step {number}"):
            with group.ledger.span("backward"):
                early = all_reduce(gradient, group, async_op=True)
                if group.index == 1:
                    recv(told, 0, group)
                late = all_reduce(gradient, group, async_op=True)
                if group.index == 0:
                    send(told, 1, group)
                early.wait()
                late.wait()
            ring_all_reduce(gradient, group)
    return group.ledger.to_dict(since=place)


def test_a_real_run(ranks: Callable[..., list[Any]]) -> None:
    books = [Ledger.from_dict(data) for data in ranks(train, 2)]
    for event in (event for book in books for event in book.calls()):
        assert event.waited is not None and event.end is not None
        assert event.begin <= event.waited <= event.end
    trace = read(*books)
    assert list(trace.steps()) == ["step 0", "step 1"]
    made = [meeting for meeting in meetings(trace) if meeting.name == "all_reduce"]
    assert [sorted(meeting.calls) for meeting in made] == [[0, 1]] * 6
    assert made[1].waited_for(0) == made[4].waited_for(0) == 1, "rank 0 told it to come"
    found = explain(trace)
    assert found.steps == 2
    for share in found.shares:
        whole = share.compute + share.exposed + share.copy + share.idle
        assert whole == pytest.approx(found.seconds)
    assert sum(segment.seconds for segment in found.path) == pytest.approx(found.seconds)
