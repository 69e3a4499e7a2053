"""Schedules as data: the formulas, the checks, the deadlock on paper, and torch's own tables."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest
from torch.distributed.pipelining import schedules as theirs

from course_lib.schedule import (
    Action,
    Costs,
    Schedule,
    ScheduleError,
    dualpipe_v,
    gpipe,
    interleaved_1f1b,
    one_f_one_b,
    simulate,
    zb_h1,
    zb_h2,
    zb_v,
)

SIZES = list(product(range(1, 6), range(1, 11)))
COSTS = [Costs(), Costs(1, 1, 1.5), Costs(2, 1, 1), Costs(1, 1.25, 0.75)]
OF_TORCH = {"FORWARD": "F", "FULL_BACKWARD": "B", "BACKWARD_INPUT": "I", "BACKWARD_WEIGHT": "W"}


@pytest.mark.parametrize(("p", "m"), SIZES)
@pytest.mark.parametrize("costs", COSTS, ids=str)
def test_gpipe_and_1f1b_take_what_the_formula_says(p: int, m: int, costs: Costs) -> None:
    once = costs.forward + costs.input + costs.weight
    for schedule, in_flight in ((gpipe(p, m), [m] * p), (one_f_one_b(p, m), None)):
        run = simulate(schedule, costs)
        assert run.makespan == pytest.approx((m + p - 1) * once)
        assert run.bubble == pytest.approx((p - 1) / m)
        expected = in_flight or [min(m, p - r) for r in range(p)]
        assert [run.in_flight(r) for r in range(p)] == expected


@pytest.mark.parametrize(("p", "rounds", "v"), list(product(range(1, 6), (1, 2, 3), (1, 2, 3, 4))))
@pytest.mark.parametrize("costs", COSTS, ids=str)
def test_interleaved_divides_the_bubble_by_its_chunks(
    p: int, rounds: int, v: int, costs: Costs
) -> None:
    m = rounds * p
    run = simulate(interleaved_1f1b(p, m, v), costs)
    once = costs.forward + costs.input + costs.weight
    assert run.makespan == pytest.approx((m * v + p - 1) * once)
    assert run.bubble == pytest.approx((p - 1) / (v * m))
    ahead = [(p - 1 - r) * (2 if v > 1 else 1) + (v - 1) * p + 1 for r in range(p)]
    assert [run.in_flight(r) for r in range(p)] == [min(m * v, a) for a in ahead]


@pytest.mark.parametrize(("p", "m"), [(p, m) for p, m in SIZES if m >= p])
@pytest.mark.parametrize("costs", COSTS[:1] + COSTS[2:], ids=str)
def test_zb_h1_reaches_the_papers_bubble_at_the_memory_of_1f1b(
    p: int, m: int, costs: Costs
) -> None:
    run = simulate(zb_h1(p, m), costs)
    busy = m * (costs.forward + costs.input + costs.weight)
    bubble = (p - 1) * (costs.forward + costs.input - costs.weight)
    assert run.makespan - busy == pytest.approx(bubble)
    most = max(simulate(one_f_one_b(p, m)).in_flight(r) for r in range(p))
    assert max(run.in_flight(r) for r in range(p)) == most == min(m, p)


@pytest.mark.parametrize(("p", "m"), [(p, m) for p, m in SIZES if m >= 2 * p - 1])
def test_zb_v_never_waits_once_it_has_begun(p: int, m: int) -> None:
    run = simulate(zb_v(p, m))
    assert [run.idle_inside(r) for r in range(p)] == [0] * p
    assert run.makespan - 6 * m == p - 1
    assert max(run.in_flight(r) for r in range(p)) <= 2 * p


@pytest.mark.parametrize(("p", "m"), [(p, m) for p, m in SIZES if m >= 2 * p])
def test_dualpipe_v_waits_as_long_and_holds_one_more(p: int, m: int) -> None:
    run = simulate(dualpipe_v(p, m))
    assert run.makespan - 6 * m == p - 1
    assert [run.in_flight(r) for r in range(p)] == [2 * p + 1] * p


def of_torch(kind: Any, p: int, m: int) -> str:
    """The table that a schedule of torch.distributed.pipelining makes, in our words."""
    rounds = max(1, m // p)
    sizes = SimpleNamespace(
        pp_group_size=p, _n_microbatches=m, num_stages=2 * p, n_local_stages=2,
        number_of_rounds=rounds, microbatches_per_round=m // rounds,
    )  # fmt: skip
    lines = []
    for rank in range(p):
        sizes.rank = rank
        actions = [a for a in kind._calculate_single_rank_operations(sizes, rank) if a]
        single = [b for a in actions for b in (a.sub_actions or [a])]
        words = [
            f"{a.stage_index}{OF_TORCH[a.computation_type.name]}{a.microbatch_index}"
            for a in single
        ]
        lines.append(" ".join(words))
    return "\n".join(lines)


@pytest.mark.parametrize(("p", "m"), SIZES)
def test_the_v_shaped_schedules_are_torchs(p: int, m: int) -> None:
    assert str(zb_v(p, m)) == of_torch(theirs.ScheduleZBVZeroBubble, p, m)
    if m >= 2 * p:
        assert str(dualpipe_v(p, m)) == of_torch(theirs.ScheduleDualPipeV, p, m)


@pytest.mark.parametrize("schedule", [gpipe(2, 3), interleaved_1f1b(2, 4, 2), zb_v(3, 6)], ids=str)
def test_text_and_back(schedule: Schedule) -> None:
    again = Schedule.parse(str(schedule), schedule.name)
    assert again == schedule and again.placement == schedule.placement


def test_what_the_words_mean() -> None:
    schedule = interleaved_1f1b(2, 2, 2)
    assert (schedule.ranks, schedule.stages, schedule.micro_batches) == (2, 4, 2)
    assert schedule.placement == (0, 1, 0, 1)
    assert schedule.stages_of(1) == [1, 3]
    forward, backward = Action.parse("1F0"), Action.parse("2B1")
    assert str(schedule.used_by[forward]) == "2F0" and str(schedule.comes_from(forward)) == "0F0"
    assert str(schedule.used_by[backward]) == "1B1" and str(schedule.comes_from(backward)) == "3B1"
    assert Action(3, "F", 0) not in schedule.used_by and Action(0, "B", 0) not in schedule.used_by
    assert schedule.comes_from(Action(0, "F", 0)) is None
    assert [schedule.place[Action.parse(word)] for word in ("0F0", "0F1", "2F0")] == [0, 1, 2]
    assert [str(a) for a in schedule.sends(1, 0)] == ["1F0", "1F1", "3B0", "3B1", "1B0", "1B1"]


def test_messages_take_time() -> None:
    run = simulate(gpipe(2, 1), Costs(message=0.5))
    assert [(str(s.action), s.begin, s.end) for line in run.slots for s in line] == [
        ("0F0", 0, 1), ("0B0", 5, 7), ("1F0", 1.5, 2.5), ("1B0", 2.5, 4.5),
    ]  # fmt: skip


def test_a_cost_for_each_stage() -> None:
    run = simulate(gpipe(2, 2), [Costs(1, 1, 1), Costs(3, 3, 3)])
    assert run.makespan == 1 + 6 + 12 + 2
    assert run.held(1) == [(1.0, 1), (4.0, 2), (13.0, 1), (19.0, 0)]


def test_stages_that_take_no_time() -> None:
    """One may be empty; if all are, there is nothing that waiting could be measured in."""
    run = simulate(gpipe(2, 2), [Costs(), Costs(0, 0, 0)])
    assert run.held(1) == [(1.0, 1), (2.0, 2), (2.0, 1), (2.0, 0)] and run.in_flight(1) == 2
    with pytest.raises(ScheduleError, match="no action that takes time"):
        simulate(gpipe(2, 2), Costs(0, 0, 0, 1))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0F0 0B0\n1F0", "stage 1 runs only F for micro-batch 0"),
        ("0F0 0F0 0B0", "stage 0 runs FFB for micro-batch 0"),
        ("0F0 0I0", "stage 0 runs FI for micro-batch 0"),
        ("0F0 0B0 0F1 0B1\n1F1 1B1", "stage 1 runs nothing for micro-batch 0"),
        ("0B0 0F0", "0B0 before 0F0 on rank 0"),
        ("0F0 0W0 0I0", "0W0 before 0I0 on rank 0"),
        ("0F0 0B0\n0F0 0B0", "0F0 on rank 1, and stage 0 on rank 0 too"),
        ("1F0 1B0", "no action of stage 0"),
        ("0F0 oB0", "'oB0'"),
        ("0F0 0X0", "'0X0'"),
    ],
)
def test_what_is_not_a_schedule(text: str, words: str) -> None:
    with pytest.raises(ScheduleError) as error:
        Schedule.parse(text)
    lines = str(error.value).splitlines()
    assert len(lines) == 3 and words in lines[1], lines


def test_a_deadlock_is_found_without_processes() -> None:
    # Rank 0 wants its first backward before it sends the forward that rank 1 waits for.
    schedule = Schedule.parse("0F0 0B0 0F1 0B1\n1F0 1F1 1B0 1B1")
    with pytest.raises(ScheduleError) as error:
        simulate(schedule)
    assert "rank 0's 0B0 waits for 1B0 of rank 1" in str(error.value)
    assert "rank 1's 1F1 waits for 0F1 of rank 0" in str(error.value)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: gpipe(0, 2), "GPipe of 0 ranks"),
        (lambda: one_f_one_b(2, 0), "0 micro-batches"),
        (lambda: interleaved_1f1b(2, 3, 2), "take a multiple of 2"),
        (lambda: interleaved_1f1b(2, 2, 0), "0 chunks"),
        (lambda: zb_h1(0, 1), "ZB-H1 of 0 ranks"),
        (lambda: zb_v(1, 0), "0 micro-batches"),
        (lambda: zb_h2(0, 1), "ZB-H2 of 0 ranks"),
        (lambda: zb_h2(2.5, 4), "2.5"),
        (lambda: zb_h2(10**4, 10**4), "at most 10,000,000 forwards"),
        (lambda: dualpipe_v(3, 5), "fewer than 6 micro-batches"),
    ],
)
def test_sizes_that_a_schedule_refuses(make: Any, words: str) -> None:
    with pytest.raises(ScheduleError, match=words):
        make()
