"""What the logs of a hang tell: the first call that differs, who stopped, and who only lags."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from course_lib.trace import FlightLog, Ledger, find_desync, flight_log

CLOCK = itertools.count(1)
WORLD = (0, 1, 2, 3)


class Book(Ledger):
    """A ledger written by hand, on a clock that counts."""

    def call(self, op: str = "all_reduce", group: tuple[int, ...] = WORLD, **fields: Any) -> Book:
        """A call that has ended."""
        event = self._begin(op, group, fields)
        event.end = float(next(CLOCK))
        return self

    def wait(self, op: str = "all_reduce", group: tuple[int, ...] = WORLD, **fields: Any) -> Book:
        """A call that the program stands still in."""
        event = self._begin(op, group, fields)
        event.waited = event.begin
        return self

    def launch(self, op: str = "all_reduce", group: tuple[int, ...] = WORLD) -> Book:
        """A call under way, while the program works on."""
        self._begin(op, group, {})
        return self

    def _begin(self, op: str, group: tuple[int, ...], fields: dict[str, Any]) -> Any:
        shape = fields.pop("shape", (4,))
        fields = {"payload": 4 * shape[0], "dtype": "float32", **fields}
        axis = {4: "world", 2: "tp"}[len(group)]
        event = self.begin(op, axis=axis, group=group, shape=shape, **fields)
        event.begin = float(next(CLOCK))
        return event

    def log(self, state: str = "running", last: int = 32) -> FlightLog:
        return flight_log(self, last, state)


def books(count: int = 4) -> list[Book]:
    return [Book(rank).call().call("barrier") for rank in range(count)]


# --- no false alarm ------------------------------------------------------------------------------
def test_ranks_that_agree() -> None:
    assert find_desync([book.log() for book in books()]) is None
    assert find_desync([book.wait().log() for book in books()]) is None, "the call is under way"
    assert find_desync([book.log("finished") for book in books()]) is None
    assert find_desync([]) is None


def test_a_rank_that_lags() -> None:
    made = books()
    for book in made[:3]:
        book.wait("all_gather")
    finding = find_desync([book.log() for book in made])
    assert finding is not None and not finding.fault
    assert (finding.kind, finding.seq, finding.ranks) == ("lagging", 2, (3,))
    assert finding.text == (
        "Rank 3 is 1 behind at all_gather, call 2 on world [0, 1, 2, 3], "
        "and all calls so far agree: it lags."
    )


def test_who_waits_for_a_rank_that_lags_does_not_lag_itself() -> None:
    made = [Book(rank) for rank in WORLD]
    made[0].wait(group=(0, 1))
    made[1].wait(group=(1, 2))
    finding = find_desync([book.log() for book in made])
    assert finding is not None
    assert (finding.kind, finding.ranks, finding.channel.group) == ("lagging", (2,), (1, 2))


def test_calls_launched_in_another_order_than_they_are_waited_for() -> None:
    """Two groups, two ranks: each has begun one call, and works on. Both can still come."""
    first, second = (0, 1), (1, 0)
    finding = find_desync([Book(0).launch(group=first).log(), Book(1).launch(group=second).log()])
    assert finding is not None and finding.kind == "lagging"


def test_logs_of_different_length() -> None:
    made = books()
    for _ in range(50):
        for book in made:
            book.call()
    logs = [book.log(last=2 + book.rank) for book in made]
    assert find_desync(logs) is None
    made[1].wait("broadcast", peer=0)
    finding = find_desync([book.log(last=2 + book.rank) for book in made])
    assert finding is not None and (finding.kind, finding.seq) == ("lagging", 52)


def test_parts_of_an_all_to_all_may_differ() -> None:
    logs = [Book(r).call("all_to_all", shape=(r + 1,)).log() for r in WORLD]
    assert find_desync(logs) is None


# --- the same number, another call ---------------------------------------------------------------
def test_a_conditional_collective() -> None:
    """`if rank == 0: all_reduce(...)` before the barrier that all make."""
    made = books()
    made[0].wait("all_reduce")
    for book in made[1:]:
        book.wait("barrier")
    finding = find_desync([book.log() for book in made])
    assert finding is not None and finding.fault
    assert (finding.kind, finding.seq, finding.ranks) == ("operation", 2, (0,))
    assert finding.text == (
        "Call 2 on world [0, 1, 2, 3] is not the same everywhere: "
        "ranks 1, 2 and 3 called barrier; rank 0 called all_reduce."
    )


def test_a_call_left_out_or_made_once_more() -> None:
    plans = {
        "left one call out": ["all_gather", "all_reduce"],
        "made one call more": ["broadcast", "broadcast", "all_gather", "all_reduce"],
    }
    for words, odd in plans.items():
        made = books(3)
        for book in made:
            usual = ["broadcast", "all_gather", "all_reduce"]
            for op in odd if book.rank == 1 else usual:
                book.call(op, (0, 1, 2, 3))
        finding = find_desync([book.log() for book in made])
        assert finding is not None and finding.ranks == (1,)
        assert finding.seq == {"left one call out": 2, "made one call more": 3}[words]
        assert words in finding.text


def test_the_first_of_several_mismatches() -> None:
    made = [Book(rank) for rank in range(2)]
    for op, other in [("broadcast", "broadcast"), ("reduce", "all_gather"), ("all_reduce", "x")]:
        made[0].call(op, (0, 1))
        made[1].call(other, (0, 1))
    finding = find_desync([book.log() for book in made])
    assert finding is not None and (finding.kind, finding.seq) == ("operation", 1)


@pytest.mark.parametrize(
    ("kind", "fields", "words"),
    [
        ("shape", {"shape": (8,)}, "rank 2 gave [8], 32 bytes"),
        ("dtype", {"dtype": "bfloat16"}, "rank 2 gave bfloat16"),
        ("root", {"peer": 3}, "rank 2 named rank 3 as the root"),
        ("operation", {"algorithm": "ring"}, "rank 2 called ring broadcast"),
    ],
)
def test_the_same_call_with_other_arguments(kind: str, fields: dict[str, Any], words: str) -> None:
    made = books()
    for book in made:
        book.wait("broadcast", **{"peer": 0, **(fields if book.rank == 2 else {})})
    finding = find_desync([book.log() for book in made])
    assert finding is not None and finding.fault
    assert (finding.kind, finding.seq, finding.ranks) == (kind, 2, (2,))
    assert words in finding.text


def test_a_message_of_another_size() -> None:
    logs = [
        Book(0).call("send", (0, 1), peer=1, shape=(8,)).log(),
        Book(1).wait("recv", (0, 1), peer=0, shape=(4, 1)).log(),
    ]
    finding = find_desync(logs)
    assert finding is not None and (finding.kind, finding.channel.ends) == ("shape", (0, 1))
    equal = [
        Book(0).call("send", (0, 1), peer=1, shape=(8,)).log(),
        Book(1).call("recv", (0, 1), peer=0, shape=(8, 1)).log(),
    ]
    assert find_desync(equal) is None, "a message is its bytes"


# --- calls that some have not made ---------------------------------------------------------------
def test_a_rank_that_stopped_one_call_early() -> None:
    made = books()
    for book in made:
        if book.rank != 2:
            book.wait()
    finding = find_desync([b.log("finished" if b.rank == 2 else "running") for b in made])
    assert finding is not None and finding.fault
    assert (finding.kind, finding.seq, finding.ranks) == ("stopped", 2, (2,))
    assert finding.text == (
        "Ranks 0, 1 and 3 wait in all_reduce, call 2 on world [0, 1, 2, 3]; "
        "rank 2 finished after 2 calls there."
    )


def test_an_exception_is_found_behind_those_who_wait_for_those_who_wait() -> None:
    made = [Book(rank) for rank in WORLD]
    made[0].wait(group=(0, 1))
    made[1].wait(group=(1, 2))
    finding = find_desync([b.log("raised" if b.rank == 2 else "running") for b in made])
    assert finding is not None
    assert (finding.kind, finding.ranks, finding.channel.group) == ("stopped", (2,), (1, 2))
    assert "rank 2 raised after 0 calls there" in finding.text


def test_groups_in_another_order() -> None:
    first, second = (0, 1), (1, 0)
    logs = [Book(0).wait(group=first).log(), Book(1).wait(group=second).log()]
    finding = find_desync(logs)
    assert finding is not None and finding.fault
    assert (finding.kind, finding.seq, finding.ranks) == ("order", 0, (1,))
    assert finding.text == (
        "Rank 0 waits in all_reduce, call 0 on tp [0, 1]; "
        "rank 1 has made 0 calls there and waits in all_reduce, call 0 on tp [1, 0]."
    )


def test_a_call_on_the_wrong_group() -> None:
    """Rank 1 takes its data-parallel group for the tensor-parallel one, of the same shape."""
    made = [Book(rank) for rank in WORLD]
    made[0].wait(group=(0, 1))
    for rank in (2, 3):
        made[rank].call(group=(2, 3))
    made[1].call(group=(1, 3))
    made[3].call(group=(1, 3))
    made[2].wait(group=(0, 2))
    made[1].wait(group=(1, 3))
    finding = find_desync([b.log("finished" if b.rank == 3 else "running") for b in made])
    assert finding is not None and finding.fault
    assert (finding.channel.group, finding.seq, finding.ranks) == ((0, 1), 0, (1,))
    assert "rank 1 has made 0 calls there and waits in all_reduce, call 1 on" in finding.text


def test_a_missing_send() -> None:
    receiver = Book(1).call("recv", (0, 1), peer=0).wait("recv", (0, 1), peer=0)
    sender = Book(0).call("send", (0, 1), peer=1)
    lagging = find_desync([sender.log(), receiver.log()])
    assert lagging is not None and lagging.kind == "lagging"
    ended = find_desync([sender.log("finished"), receiver.log()])
    assert ended is not None and (ended.kind, ended.seq, ended.ranks) == ("stopped", 1, (0,))
    assert ended.text == (
        "Rank 1 waits in recv from rank 0 (message 1); rank 0 finished after 1 message there."
    )
    sender.wait("barrier", (0, 1))
    circle = find_desync([sender.log(), receiver.log()])
    assert circle is not None and circle.kind == "order" and circle.fault


def test_everybody_sends_and_nobody_receives() -> None:
    logs = [
        Book(rank).wait("send", (0, 1, 2, 3), peer=(rank + 1) % 4).log() for rank in range(4)
    ]  # fmt: skip
    finding = find_desync(logs)
    assert finding is not None and (finding.kind, finding.ranks) == ("order", (1,))


def test_nothing_is_concluded_of_a_rank_without_a_log() -> None:
    made = books()
    for book in made[:3]:
        book.wait()
    assert find_desync([book.log() for book in made[:3]]) is None


@pytest.mark.slow
def test_many_ranks_in_little_time() -> None:
    group = tuple(range(256))
    made = [Book(rank) for rank in group]
    for book in made:
        for _ in range(40):
            book.begin("all_reduce", axis="world", group=group, payload=4).end = 1.0
        if book.rank != 77:
            event = book.begin("all_reduce", axis="world", group=group, payload=4)
            event.waited = event.begin
    finding = find_desync([b.log("killed" if b.rank == 77 else "running") for b in made])
    assert finding is not None and (finding.kind, finding.ranks) == ("stopped", (77,))


def test_a_long_chain_of_ranks_that_wait_for_each_other() -> None:
    """As in a pipeline: the first waits for the second, and so on; the last is at work."""
    last = 1500
    chain = [Book(rank).wait("recv", (0, 1), peer=rank + 1) for rank in range(last)]
    finding = find_desync([book.log() for book in (*chain, Book(last))])
    assert finding is not None and (finding.kind, finding.ranks) == ("lagging", (last,))
