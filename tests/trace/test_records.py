"""Events, ledgers, timelines and formulas: plain data, so these tests need no ranks."""

from __future__ import annotations

import json
from typing import Any

import pytest

from course_lib.trace import (
    Event,
    Ledger,
    Refusal,
    Span,
    Timeline,
    chunk_sizes,
    formula_text,
    wire_bytes,
)
from course_lib.trace.timeline import spread


def call(ledger: Ledger, op: str = "all_reduce", **fields: Any) -> Event:
    """A finished call."""
    fields = {"axis": "dp", "group": (0, 1), "payload": 100, **fields}
    event = ledger.begin(op, **fields)
    ledger.finish(event)
    return event


def ring(ledger: Ledger) -> Event:
    """A collective of two messages."""
    event = ledger.begin(
        "all_reduce", axis="dp", group=(0, 1), payload=80, algorithm="ring", item=8
    )
    with ledger.within(event):
        for step in range(2):
            call(ledger, "send", payload=40, sent=40, peer=1, step=step)
            call(ledger, "recv", payload=40, received=40, peer=1, step=step)
    return event


# --- formulas ------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("op", "sent"),
    [("all_reduce", 150), ("reduce_scatter", 75), ("all_gather", 75), ("all_to_all", 75)],
)
def test_wire_bytes_of_four_even_chunks(op: str, sent: int) -> None:
    assert [wire_bytes(op, 100, 4, i) for i in range(4)] == [(sent, sent)] * 4


@pytest.mark.parametrize("op", ["all_reduce", "reduce_scatter", "all_gather", "broadcast",
                                "reduce", "scatter", "gather"])  # fmt: skip
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_every_byte_sent_arrives(op: str, size: int) -> None:
    for count in (0, 1, 7, 4097):
        pairs = [wire_bytes(op, 8 * count, size, i, 8) for i in range(size)]
        assert sum(sent for sent, _ in pairs) == sum(received for _, received in pairs)
        if op in ("reduce_scatter", "all_gather", "broadcast", "reduce"):
            assert sum(sent for sent, _ in pairs) == (size - 1) * 8 * count


def test_ring_bytes_where_the_size_does_not_divide() -> None:
    """10 elements over 4 ranks are 3, 3, 2, 2: rank r never sends chunk r, never gets r - 1."""
    assert [wire_bytes("reduce_scatter", 10, 4, i) for i in range(4)] == [
        (7, 8), (7, 7), (8, 7), (8, 8),
    ]  # fmt: skip
    assert wire_bytes("all_reduce", 10, 4, 0) == (7 + 7, 8 + 7)


def test_chunks_are_cut_as_torch_cuts() -> None:
    assert chunk_sizes(10, 4) == [3, 3, 2, 2]
    assert chunk_sizes(2, 4) == [1, 1, 0, 0]
    assert chunk_sizes(0, 3) == [0, 0, 0]


def test_formulas_refuse_what_they_do_not_know() -> None:
    assert wire_bytes("barrier", 0, 4, 0) == (0, 0)
    assert formula_text("all_gather") == "(N-1)/N·S"
    assert formula_text("nothing") == ""
    for op, size in (("nothing", 2), ("nothing", 1), ("send", 2)):
        with pytest.raises(Refusal, match=f"{op!r}\nfound: known: [^'\n]*scatter, barrier\n"):
            wire_bytes(op, 1, size, 0)


# --- events and ledgers --------------------------------------------------------------------------
def test_json_there_and_back() -> None:
    ledger = Ledger(3)
    ring(ledger)
    with ledger.span("forward"), ledger.hold("activations", 64):
        call(ledger, shape=(2, 5), dtype="bfloat16", item=2)
    again = Ledger.from_dict(json.loads(json.dumps(ledger.to_dict())))
    assert again.events == ledger.events
    assert again.spans == ledger.spans
    assert (again.rank, again.held, again.peak) == (3, {"activations": 0}, {"activations": 64})
    assert again.events[-1].shape == (2, 5)
    assert again.sent() == ledger.sent()


def test_since_leaves_out_what_came_before() -> None:
    ledger = Ledger(0)
    with ledger.span("old"):
        ring(ledger)
    ledger.add_memory("gradients", 5)
    ledger.add_memory("gradients", 3)
    count, place = len(ledger.events), ledger.place()
    ledger.mark("before the first call")
    with ledger.span("new"):
        call(ledger, sent=7)
    ledger.add_memory("gradients", 1)
    data = ledger.to_dict(since=place)
    assert [event["number"] for event in data["events"]] == [count]
    assert [span["name"] for span in data["spans"]] == ["before the first call", "new"]
    assert [sample[1:] for sample in data["samples"]] == [["gradients", 8], ["gradients", 9]]
    assert data["samples"][0][0] == place.at, "what was held, from the cut on"


def test_messages_of_a_collective_count_once() -> None:
    ledger = Ledger(0)
    event = ring(ledger)
    call(ledger, "send", peer=1, sent=5)
    assert (event.sent, event.received) == (80, 80)
    assert ledger.sent() == 85
    assert ledger.received() == 80
    assert ledger.sent("all_reduce") == 80
    assert ledger.sent(axis="tp") == 0
    assert [e.op for e in ledger.calls()] == ["all_reduce", "send"]
    assert event.label == "ring all_reduce"
    assert ledger.calls("send")[0].label == "send"


def test_finish_counts_a_message_once() -> None:
    ledger = Ledger(0)
    event = ledger.begin("all_reduce", axis="dp", group=(0, 1), payload=8)
    with ledger.within(event):
        message = call(ledger, "send", peer=1, sent=8)
        ledger.finish(message)
    assert event.sent == 8
    ended = event.end
    ledger.finish(event)
    assert event.end == ended


def test_sequence_numbers_tell_calls_apart() -> None:
    """Per group for collectives, per peer for messages; parts do not count among the calls."""
    ledger = Ledger(0)
    ring(ledger)
    assert call(ledger, "broadcast").seq == 1
    assert call(ledger, group=(0, 2)).seq == 0
    assert call(ledger, "send", peer=1).seq == 2, "the ring has sent two messages there"
    assert call(ledger, "send", peer=2).seq == 0
    assert call(ledger, "recv", peer=1).seq == 2


def test_open_events_are_what_is_waited_for() -> None:
    ledger = Ledger(0)
    call(ledger)
    event = ledger.begin("barrier", axis="dp", group=(0, 1), payload=0)
    assert ledger.open_events() == [event]
    ledger.finish(event)
    assert ledger.open_events() == []


def test_memory_by_class() -> None:
    ledger = Ledger(0)
    ledger.add_memory("parameters", 100)
    with ledger.hold("gradients", 50), ledger.hold("gradients", 30):
        ledger.add_memory("parameters", -40)
    assert ledger.held == {"parameters": 60, "gradients": 0}
    assert ledger.peak == {"parameters": 100, "gradients": 80}
    with pytest.raises(ValueError, match="known classes"):
        ledger.add_memory("grads", 1)


# --- timelines -----------------------------------------------------------------------------------
def timed(rank: int, calls: list[tuple[float, float]], work: list[tuple[float, float]]) -> Ledger:
    """A ledger with calls and spans at given times."""
    ledger = Ledger(rank)
    for begin, end in calls:
        event = call(ledger, group=(0, 1), sent=100, received=100)
        event.begin, event.end = begin, end
    ledger.spans = [Span(rank, "forward", begin, end) for begin, end in work]
    return ledger


def test_what_is_held_is_known_when_all_else_is_forgotten() -> None:
    book = Ledger(0)
    book.add_memory("parameters", 100)
    book.add_memory("activations", 5)
    book.add_memory("activations", -5)
    book.forget()
    place = book.place()
    book.add_memory("activations", 7)
    rows = [row[1:] for row in book.to_dict(place)["samples"]]
    assert rows == [["parameters", 100], ["activations", 7]]


def test_overlap_and_exposed_time() -> None:
    line = Timeline([
        timed(1, [(0.0, 1.0)], []),
        timed(0, [(1.0, 3.0), (2.0, 4.0), (6.0, 7.0)], [(0.0, 2.5), (6.0, 6.25)]),
    ])  # fmt: skip
    assert line.ranks == [0, 1]
    assert (line.begin, line.end) == (0.0, 7.0)
    assert line.communication(0) == [(1.0, 4.0), (6.0, 7.0)], "two calls at once count once"
    assert line.exposed(0) == pytest.approx(4.0 - 1.5 - 0.25)
    assert line.exposed(1) == pytest.approx(1.0)
    with pytest.raises(KeyError, match="rank 2"):
        line.rank(2)


def test_rows_hold_measured_against_formula() -> None:
    books = []
    for rank in range(2):
        book = Ledger(rank)
        book.rank = rank
        ring(book)
        call(book, "broadcast", peer=1, payload=10, sent=10 * rank, received=10 * (1 - rank))
        call(book, "send", peer=1 - rank, payload=5, sent=5)
        books.append(book)
    ring_row, broadcast_row, send_row = Timeline(books).rows()
    assert ring_row["op"] == "ring all_reduce"
    assert ring_row["calls"] == [1, 1]
    assert ring_row["messages"] == [2, 2]
    assert ring_row["sent"] == ring_row["formula_sent"] == [80, 80]
    assert broadcast_row["sent"] == broadcast_row["formula_sent"] == [0, 10]
    assert send_row["formula_sent"] == [5, 5]
    assert Timeline(books).sent() == [85, 95]


def test_table_text() -> None:
    assert Timeline([Ledger(0)]).table() == "ledger: no communication"
    books = [timed(rank, [(0.0, 1.0)], []) for rank in range(2)]
    books[1].add_memory("parameters", 2048)
    head, row, peak = Timeline(books).table().splitlines()
    assert head.split()[:4] == ["operation", "group", "calls", "S"]
    assert row.split() == ["all_reduce", "dp", "1", "100", "100", "2(N-1)/N·S", "100"]
    assert peak == "peak parameters: 0–2,048 bytes/rank"
    assert spread([1000, 20]) == "20–1,000"
    assert spread([]) == "0"


def test_chrome_trace_has_the_same_fields() -> None:
    ledger = timed(0, [(1.0, 1.5)], [(0.5, 2.0)])
    ring(ledger)
    for event in ledger.events[1:]:
        event.begin, event.end = 3.0, 3.25
    trace = json.loads(Timeline([ledger]).chrome_trace())
    name, work, first, *rest = trace["traceEvents"]
    assert name == {"ph": "M", "pid": 0, "name": "process_name", "args": {"name": "rank 0"}}
    assert (work["name"], work["tid"], work["ts"], work["dur"]) == ("forward", "work", 0, 1.5e6)
    assert (first["name"], first["tid"], first["ts"], first["dur"]) == (
        "all_reduce", "calls", 0.5e6, 0.5e6,
    )  # fmt: skip
    assert Event.from_dict(first["args"]) == ledger.events[0]
    assert [item["tid"] for item in rest] == ["calls", *["messages"] * 4]
    assert all(item["ph"] == "X" and item["pid"] == 0 for item in [work, first, *rest])
