"""`ledger.record()`: the calls of a block, and nothing before or after it."""

from __future__ import annotations

from course_lib.trace import Calls, Ledger

WORLD = (0, 1)


def call(ledger: Ledger, op: str, sent: int, axis: str = "dp") -> None:
    event = ledger.begin(op, axis=axis, group=WORLD, payload=sent, sent=sent)
    ledger.finish(event)


def test_only_the_block_counts_and_parts_do_not() -> None:
    ledger = Ledger(0)
    call(ledger, "all_reduce", 1)
    with ledger.record() as calls:
        call(ledger, "all_gather", 10)
        whole = ledger.begin("all_reduce", axis="tp", group=WORLD, payload=8)
        with ledger.within(whole):
            call(ledger, "send", 5)
        call(ledger, "all_gather", 20)
    call(ledger, "all_reduce", 100)
    assert (calls.count, calls.sent) == (3, 35)
    assert calls.by_axis() == {"dp": 30, "tp": 5}
    assert calls.by_op() == {"all_gather": 30, "all_reduce": 5}
    assert repr(calls) == "2 all_gather, 1 all_reduce: 35 bytes sent"


def test_it_can_be_read_while_the_block_runs_and_after_an_error() -> None:
    ledger = Ledger(0)
    seen: list[Calls] = []
    try:
        with ledger.record() as calls:
            seen.append(calls)
            assert repr(calls) == "no calls: 0 bytes sent"
            call(ledger, "barrier", 0)
            assert calls.count == 1
            raise KeyError
    except KeyError:
        call(ledger, "barrier", 0)
    assert seen[0].count == 1
