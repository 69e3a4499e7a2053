"""Flight logs: the end of a ledger, with the numbers of what is no longer in it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Any

import torch

from course_lib.comm import Group, all_reduce, barrier, broadcast, recv, ring_all_reduce, send
from course_lib.trace import FlightLog, Ledger, find_desync, flight_log
from course_lib.trace.hangs.flight import Channel

WORLD = Channel((0, 1))


def book(rank: int, calls: int) -> Ledger:
    """A ring of messages and, after it, so many all-reduces, the last one under way."""
    ledger = Ledger(rank)
    with ledger.within(
        ledger.begin("reduce_scatter", axis="dp", group=(0, 1), payload=8, algorithm="ring")
    ):
        for op in ("send", "recv"):
            ledger.finish(ledger.begin(op, axis="dp", group=(0, 1), payload=4, peer=1 - rank))
    for number in range(calls):
        event = ledger.begin(
            "all_reduce", axis="dp", group=(0, 1), payload=12, shape=(3,), dtype="float32"
        )
        if number < calls - 1:
            ledger.finish(event)
    return ledger


def test_the_last_calls_and_how_many_there_were() -> None:
    log = flight_log(book(0, 5), last=2)
    assert [(r.op, r.seq, r.state) for r in log.records] == [
        ("all_reduce", 4, "finished"), ("all_reduce", 5, "under way"),
    ]  # fmt: skip
    assert log.made == {WORLD: 6, Channel((0, 1), 0, 1): 1, Channel((0, 1), 1, 0): 1}
    assert (log.records[1].shape, log.records[1].dtype, log.records[1].payload) == (
        (3,), "float32", 12,
    )  # fmt: skip
    assert flight_log(book(0, 5)).records[0].op == "ring reduce_scatter"
    assert flight_log(book(0, 5), last=0).records == []


def test_who_stands_still() -> None:
    ledger = book(0, 3)
    assert flight_log(ledger).waiting is None, "it has begun the call, and works on"
    ledger.events[-1].waited = 4.0
    stuck = flight_log(ledger).waiting
    assert stuck is not None and (stuck.seq, stuck.state) == (3, "waiting")
    assert flight_log(ledger, state="killed").waiting is None


def test_json_there_and_back() -> None:
    log = flight_log(book(1, 3), state="raised")
    again = FlightLog.from_dict(json.loads(json.dumps(log.to_dict())))
    assert again == log


def test_counts_survive_what_a_ledger_forgets() -> None:
    """Of a long run only the end is kept; the numbers go on, also through JSON."""
    ledger = book(0, 1)
    ledger.finish(ledger.events[-1])
    place = ledger.place()
    ledger.begin("barrier", axis="dp", group=(0, 1), payload=0)
    again = Ledger.from_dict(ledger.to_dict(since=place))
    assert flight_log(again).made[WORLD] == flight_log(ledger).made[WORLD] == 3
    ledger.finish(ledger.events[-1])
    ledger.events = []
    assert flight_log(ledger).made[WORLD] == 3


def hang(group: Group) -> dict[str, Any]:
    """Rank 0 waits in a call while both logs are taken; rank 1 makes that call only afterwards."""
    tensor, told = torch.ones(6, 2, dtype=torch.float64), torch.zeros(1)
    ring_all_reduce(tensor, group)
    broadcast(tensor, 1, group)
    barrier(group)
    if group.index == 1:
        log = flight_log(group.ledger)
        recv(told, 0, group)
        all_reduce(tensor, group)
        return log.to_dict()
    work = all_reduce(tensor, group, async_op=True)
    waiter = threading.Thread(target=work.wait)
    waiter.start()
    while work.event.waited is None:
        time.sleep(0.001)
    log = flight_log(group.ledger)
    send(told, 1, group)
    waiter.join()
    return log.to_dict()


def test_a_real_hang(ranks: Callable[..., list[Any]]) -> None:
    logs = [FlightLog.from_dict(data) for data in ranks(hang, 2)]
    assert [[r.op for r in log.records] for log in logs] == [
        ["ring all_reduce", "broadcast", "barrier", "all_reduce"],
        ["ring all_reduce", "broadcast", "barrier"],
    ]
    finding = find_desync(logs)
    assert finding is not None and not finding.fault, "as far as one can see, rank 1 is at work"
    assert (finding.kind, finding.seq, finding.ranks) == ("lagging", 3, (1,))
    logs[1].state = "finished"
    finding = find_desync(logs)
    assert finding is not None and finding.fault
    assert (finding.kind, finding.seq, finding.ranks) == ("stopped", 3, (1,))
    assert finding.text == (
        "Rank 0 waits in all_reduce, call 3 on world [0, 1]; rank 1 finished after 3 calls there."
    )
