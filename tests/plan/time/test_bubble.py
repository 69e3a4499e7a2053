"""Pipelines in seconds: the papers' formulas, and that running the beginning is enough."""

from __future__ import annotations

import pytest

from course_lib.plan.time import bubble
from course_lib.plan.time.bubble import pipeline
from course_lib.schedule import Costs, ScheduleError, kind_of, make_schedule, simulate, zb_h2

UNIT = Costs()


@pytest.mark.parametrize("p, m", [(2, 4), (4, 32), (8, 200)])
def test_bubbles_are_the_papers(p: int, m: int) -> None:
    def waits(name: str, chunks: int = 1) -> float:
        count = kind_of(name).stages(p, chunks)
        part = Costs(*(1 / kind_of(name).stages(1, chunks),) * 3)
        run = pipeline(name, p, m, chunks, [part] * count)
        assert run.busy == pytest.approx([3 * m] * p)
        return run.seconds - run.busy[0]

    assert waits("1F1B") == waits("GPipe") == pytest.approx(3 * (p - 1))
    assert waits("interleaved 1F1B", 2) == pytest.approx(3 * (p - 1) / 2)
    assert waits("ZB-H1") == pytest.approx(p - 1)
    assert waits("ZB-V") == pytest.approx((p - 1) / 2)
    assert waits("ZB-H2") == pytest.approx(0)


@pytest.mark.parametrize("name", ["1F1B", "interleaved 1F1B", "GPipe"])
def test_the_beginning_of_a_schedule_tells_the_rest(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    p, m, chunks = 4, 48, 3
    costs = [Costs(1, 1.2, 0.9, 0.1)] * (kind_of(name).stages(p, chunks) - 1) + [
        Costs(1.3, 1.4, 1, 0)
    ]
    whole = pipeline(name, p, m, chunks, costs)
    monkeypatch.setattr(bubble, "ACTIONS", 0)
    short = pipeline(name, p, m, chunks, costs)
    assert short.seconds == pytest.approx(whole.seconds, rel=1e-9)
    assert short.busy == pytest.approx(whole.busy, rel=1e-9)


def test_one_rank_never_waits() -> None:
    alone = pipeline("ZB-V", 1, 7, 1, [UNIT] * 2)
    assert (alone.seconds, alone.busy) == (42, (42,))
    assert simulate(make_schedule("ZB-V", 1, 7), UNIT).makespan == 42


def test_zb_h2_never_waits_and_holds_twice_as_much() -> None:
    run = simulate(zb_h2(5, 20), UNIT)
    assert all(run.idle_inside(rank) == 0 for rank in range(5))
    assert run.in_flight(0) == 9
    assert simulate(make_schedule("1F1B", 5, 20), UNIT).in_flight(0) == 5


def test_what_cannot_be_made_is_refused() -> None:
    with pytest.raises(ScheduleError, match="multiple of 4"):
        pipeline("interleaved 1F1B", 4, 1001, 2, [UNIT] * 8)
    with pytest.raises(ScheduleError, match="ZB-H2"):
        make_schedule("zigzag", 2, 2)
    with pytest.raises(ScheduleError, match="found: 0"):
        zb_h2(0, 3)
