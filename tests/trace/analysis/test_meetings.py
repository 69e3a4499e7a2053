"""Who waited for whom: in collectives, with a root, and in messages."""

from __future__ import annotations

from typing import Any

import pytest

from course_lib.trace import Stretch, Trace
from course_lib.trace.analysis.meetings import lateness, meetings


def call(rank: int, name: str, begin: float, end: float, **fields: Any) -> Stretch:
    fields = {"group": (0, 1, 2), "seq": 0, **fields}
    return Stretch(rank, "communication", name, begin, end, **fields)


def only(*calls: Stretch) -> Any:
    (meeting,) = meetings(Trace(calls))
    return meeting


def test_in_an_all_reduce_everybody_waits_for_the_last() -> None:
    made = only(*(call(rank, "all_reduce", begin, 5.0) for rank, begin in enumerate((1, 4, 2))))
    assert [made.waited_for(rank) for rank in range(3)] == [1, 1, 1]


def test_in_a_broadcast_for_the_root_alone() -> None:
    begins_and_ends = [(1.0, 4.5), (4.0, 4.4), (6.0, 6.5)]
    made = only(*(call(r, "broadcast", *t, peer=1) for r, t in enumerate(begins_and_ends)))
    assert made.waited_for(0) == 1
    assert made.waited_for(2) == 2, "rank 2 came last, and waited for nobody"
    unknown = only(*(call(r, "broadcast", *t) for r, t in enumerate(begins_and_ends)))
    assert unknown.waited_for(0) == 1, "rank 2 came when rank 0 was through"


def test_a_reduce_holds_up_its_target_alone() -> None:
    made = only(*(call(r, "reduce", b, 5.0, peer=0) for r, b in enumerate((1.0, 2.0, 4.0))))
    assert [made.waited_for(rank) for rank in range(3)] == [2, 1, 2]


def test_messages_meet_by_their_ends() -> None:
    calls = [
        call(0, "send", 3.0, 4.0, peer=1),
        call(1, "recv", 1.0, 4.0, peer=0),
        call(1, "send", 4.0, 4.1, peer=0),
        call(0, "recv", 4.0, 4.2, peer=1),
        call(2, "send", 0.0, 0.1),
    ]
    there, back = meetings(Trace(calls))
    assert (there.name, there.waited_for(1), there.waited_for(0)) == ("send", 0, 0)
    assert sorted(back.calls) == [0, 1]


def test_calls_of_which_too_little_is_known_are_left_out() -> None:
    assert meetings(Trace([call(0, "all_reduce", 0, 1, group=(), seq=-1)])) == []


def test_the_straggler_is_who_costs_the_others_time() -> None:
    stretches = []
    for seq, begins in enumerate([(0.0, 3.0, 1.0), (5.0, 5.0, 5.5)]):
        for rank, begin in enumerate(begins):
            stretches.append(call(rank, "all_reduce", begin, max(begins) + 0.25, seq=seq))
    stretches.append(Stretch(0, "compute", "hidden", 0.0, 1.5))
    late = lateness(Trace(stretches))
    assert [(found.rank, found.meetings) for found in late] == [(1, 1), (2, 1), (0, 0)]
    assert late[0].seconds == pytest.approx(1.5 + 2.0), "rank 0 computed for half of its wait"
    assert late[1].seconds == pytest.approx(0.5 + 0.5)
