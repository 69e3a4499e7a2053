"""The critical path: without a gap, and through the ranks that were waited for."""

from __future__ import annotations

import random

import pytest

from course_lib.trace import Stretch, Trace
from course_lib.trace.analysis.critical import critical_path


def work(rank: int, begin: float, end: float) -> Stretch:
    return Stretch(rank, "compute", "work", begin, end)


def meet(seq: int, begins: list[float], end: float, name: str = "all_reduce") -> list[Stretch]:
    group = tuple(range(len(begins)))
    return [
        Stretch(rank, "communication", name, begin, end, group, seq)
        for rank, begin in enumerate(begins)
    ]


def path(trace: Trace) -> list[tuple[int, str, float]]:
    return [(s.rank, s.what, round(s.seconds, 9)) for s in critical_path(trace)]


def test_it_changes_to_the_rank_that_came_last() -> None:
    first, second = meet(0, [2.0, 5.0], 6.0), meet(1, [9.0, 7.0], 10.0)
    done = [work(0, 0, 2), work(1, 0, 5), work(0, 6, 9), work(1, 6, 7), work(1, 10, 11)]
    assert path(Trace([*first, *second, *done])) == [
        (1, "compute", 5.0),
        (1, "all_reduce", 1.0),
        (0, "compute", 3.0),
        (0, "all_reduce", 1.0),
        (1, "compute", 1.0),
    ]


def test_a_call_that_work_hides_is_not_on_it() -> None:
    hidden = meet(0, [1.0, 4.0], 5.0)
    assert path(Trace([*hidden, work(0, 0, 8), work(1, 0, 4)])) == [(0, "compute", 8.0)]


def test_messages_lead_from_stage_to_stage() -> None:
    def message(seq: int, send: tuple[int, float], recv: tuple[int, float], end: float) -> list:
        (sender, left), (receiver, asked) = send, recv
        return [
            Stretch(sender, "communication", "send", left, end, (0, 1), seq, receiver),
            Stretch(receiver, "communication", "recv", asked, end, (0, 1), seq, sender),
        ]

    forward, backward = message(0, (0, 2.0), (1, 0.0), 2.5), message(0, (1, 6.5), (0, 2.5), 7.0)
    stages = [work(0, 0, 2), work(1, 2.5, 6.5), work(0, 7, 10)]
    assert path(Trace([*forward, *backward, *stages])) == [
        (0, "compute", 2.0),
        (0, "send", 0.5),
        (1, "compute", 4.0),
        (1, "send", 0.5),
        (0, "compute", 3.0),
    ]


def test_time_that_nothing_explains_is_idle() -> None:
    assert path(Trace([work(0, 1, 2)], window=(0.0, 3.0))) == [
        (0, "idle", 1.0), (0, "compute", 1.0), (0, "idle", 1.0),
    ]  # fmt: skip
    assert critical_path(Trace([])) == []


def test_a_call_that_began_before_the_window_ends_the_path() -> None:
    trace = Trace([*meet(0, [0.0, 2.0], 6.0), work(0, 6, 8), work(1, 6, 7)]).cut(4.0, 8.0)
    assert path(trace) == [(1, "all_reduce", 2.0), (0, "compute", 2.0)]


@pytest.mark.parametrize("seed", range(30))
def test_it_always_adds_up_to_the_window(seed: int) -> None:
    dice = random.Random(seed)
    at, stretches = [0.0] * 3, []
    for seq in range(12):
        for rank in range(3):
            length = dice.choice([0.0, 0.5, 1.0, dice.random()])
            stretches.append(work(rank, at[rank], at[rank] + length))
            at[rank] += length
        end = max(at) + dice.choice([0.0, 0.25])
        stretches += meet(seq, list(at), end, dice.choice(["all_reduce", "broadcast"]))
        at = [end] * 3 if dice.random() < 0.7 else at  # else nobody waited
    trace = Trace(stretches)
    found = critical_path(trace)
    assert sum(segment.seconds for segment in found) == pytest.approx(trace.seconds)
    assert found[0].begin == trace.begin and found[-1].end == trace.end
    assert all(a.end == b.begin for a, b in zip(found, found[1:], strict=False))
    assert all(segment.seconds > 0 for segment in found)
