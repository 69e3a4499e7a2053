"""The flight logs that a hang leaves behind, and what the autopsy says of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from course_lib import comm
from course_lib.ranks import ForkServer, Pool, RanksError
from course_lib.ranks.pool import gather
from course_lib.ranks.pool.outcome import Outcome
from course_lib.trace import find_desync

Function = Callable[[comm.Group], Any]


@pytest.fixture(autouse=True)
def quicker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gather, "LOOK", 0.1)


def hung(server: ForkServer, function: Function, world_size: int = 2, **how: Any) -> Outcome:
    """How a function ended that stands still or fails."""
    with Pool(world_size, server, stall=0.3) as pool, pytest.raises(RanksError) as caught:
        pool.run(function, timeout=how.get("timeout", 30))
    return caught.value.outcome


def story(outcome: Outcome) -> str:
    return " ".join(outcome.story().split())


def two_groups_in_another_order(group: comm.Group) -> None:
    first = group.split([[0, 1], [2, 3]], "tp")
    second = group.split([[0, 2], [1, 3]], "dp")
    comm.all_reduce(torch.ones(3), group)
    order = (second, first) if group.rank in (0, 3) else (first, second)
    for each in order:
        comm.all_reduce(torch.ones(5), each)


def test_a_hang_of_two_groups(server: ForkServer) -> None:
    outcome = hung(server, two_groups_in_another_order, 4)
    assert [(log.rank, log.state) for log in outcome.flight_logs] == [
        (0, "running"), (1, "running"), (2, "running"), (3, "running"),
    ]  # fmt: skip
    found = find_desync(outcome.flight_logs)
    assert found is not None
    assert (found.kind, found.seq, found.fault) == ("order", 0, True)
    (late,) = found.ranks  # of the four which wait in a circle, one that the first to wait needs
    assert {*found.channel.ends} in ({0, 1}, {2, 3}, {0, 2}, {1, 3})
    assert f"rank {late} has made 0 calls there and waits in all_reduce" in found.text
    assert found.text not in story(outcome), "who waits for whom is said already"


def stops_early(group: comm.Group) -> int:
    for _ in range(3 if group.rank == 2 else 20):
        comm.all_reduce(torch.ones(3), group)
    return group.rank


def test_a_rank_that_has_finished_tells_its_calls_too(server: ForkServer) -> None:
    outcome = hung(server, stops_early, 3)
    assert [log.state for log in outcome.flight_logs] == ["running", "running", "finished"]
    found = find_desync(outcome.flight_logs)
    assert found is not None
    assert (found.kind, found.seq, found.ranks) == ("stopped", 3, (2,))


def raises(group: comm.Group) -> None:
    for step in range(30):
        if (group.rank, step) == (0, 20):
            raise ValueError("a bad batch")
        comm.all_reduce(torch.ones(3), group)


def test_only_the_last_calls_and_all_counts(server: ForkServer) -> None:
    outcome = hung(server, raises)
    first, second = outcome.flight_logs
    assert (first.state, second.state) == ("raised", "running")
    assert [record.seq for record in first.records] == list(range(4, 20))
    assert list(first.made.values()) == [20]
    found = find_desync(outcome.flight_logs)
    assert found is not None
    assert (found.kind, found.seq, found.ranks) == ("stopped", 20, (0,))


def swapped_and_waits_later(group: comm.Group) -> None:
    calls = [
        lambda: comm.broadcast(torch.ones(3), 0, group, async_op=True),
        lambda: comm.all_reduce(torch.ones(3), group, async_op=True),
    ]
    works = [call() for call in (calls if group.rank == 0 else calls[::-1])]
    works[1].wait()


def test_the_story_says_where_they_parted_if_that_is_not_where_they_wait(
    server: ForkServer,
) -> None:
    outcome = hung(server, swapped_and_waits_later)
    found = find_desync(outcome.flight_logs)
    assert found is not None
    assert (found.kind, found.seq) == ("operation", 0)
    assert "rank 0 in all_reduce, call 1" in story(outcome)
    assert found.text in story(outcome)
    assert "Call 0 on world [0, 1] is not the same everywhere" in story(outcome)


def other_operations(group: comm.Group) -> None:
    if group.rank == 0:
        comm.all_reduce(torch.ones(3), group)
    else:
        comm.broadcast(torch.ones(3), 0, group)


def test_it_is_not_said_twice(server: ForkServer) -> None:
    outcome = hung(server, other_operations)
    found = find_desync(outcome.flight_logs)
    assert found is not None and found.kind == "operation"
    assert "The ranks are in different calls" in story(outcome)
    assert "not the same everywhere" not in story(outcome)


def busy_while_others_wait(group: comm.Group) -> None:
    if group.rank == 1:
        while True:
            sum(range(1000))
    comm.all_reduce(torch.ones(3), group)


def test_a_time_out_leaves_logs_as_well(server: ForkServer) -> None:
    outcome = hung(server, busy_while_others_wait, timeout=0.6)
    assert outcome.verdict == "timeout"
    found = find_desync(outcome.flight_logs)
    assert found is not None
    assert (found.kind, found.ranks, found.fault) == ("lagging", (1,), False)
    assert found.text not in story(outcome)


def test_a_cell_that_ends_has_none(server: ForkServer) -> None:
    with Pool(2, server) as pool:
        assert pool.run_cell("comm.all_reduce(torch.ones(3), group)").flight_logs == []
