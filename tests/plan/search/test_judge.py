"""A layout that somebody has in mind, and what training costs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from course_lib.layout import Layout
from course_lib.plan import Problem, plan, problem
from course_lib.plan.search.bill import Bill
from course_lib.plan.search.judge import distance, judge, parse_layout, strategy_of, words_of
from course_lib.plan.search.planner import Plan


@pytest.fixture(scope="module")
def asked() -> Problem:
    return problem("llama2-13b", "16xH100", 64)


@pytest.fixture(scope="module")
def found(asked: Problem) -> Plan:
    return plan(asked)


def test_words_and_layouts_are_the_same(asked: Problem) -> None:
    made = parse_layout(
        ["pp2", "dp4", "tp2", "zero1", "mbs2", "interleaved", "chunks4", "full"], asked
    )
    assert (made.pp, made.dp, made.tp, made.zero, made.micro_batch_size) == (2, 4, 2, 1, 2)
    assert (made.schedule, made.chunks, made.recompute) == ("interleaved 1F1B", 4, "full")
    assert made.micro_batches == 8 and made.sequence
    assert parse_layout(words_of(made).split(), asked) == made


def test_replicas_are_what_is_left(asked: Problem) -> None:
    assert parse_layout(["tp8"], asked).dp == 2
    assert parse_layout(["tp=8", "dp=1"], asked).gpus == 8


@pytest.mark.parametrize(
    ("asked_as", "same"),
    [
        ("TP8,DP2,ZeRO1", "tp8 dp2 zero1"),
        ("tp2 pp2 Interleaved", "tp2 pp2 interleaved chunks2"),
        ("pp2 vpp4", "pp2 interleaved chunks4"),
        ("pp2 1F1B", "pp2 1f1b"),
        ("fsdp16 full", "dp16 zero3 full"),
        ("ddp tp-2", "dp8 tp2"),
        ("pp2 zb-v", "pp2 zb-v chunks2"),
    ],
)
def test_what_people_write_is_understood(asked_as: str, same: str, asked: Problem) -> None:
    assert parse_layout([asked_as], asked) == parse_layout(same.split(), asked)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("tp8 tp4", "tp 8 was said before"),
        ("fsdp dp2 ddp", "zero 3 was said before"),
        ("pp2 1f1b chunks4", "1f1b has 1 on each rank"),
        ("tp8 interleaved", "pp2 or more"),
    ],
)
def test_words_that_do_not_go_together_are_refused(words: str, why: str, asked: Problem) -> None:
    with pytest.raises(ValueError, match=why):
        parse_layout(words.split(), asked)


def test_the_nearest_may_be_the_same_degrees_used_better(asked: Problem, found: Plan) -> None:
    """Of 16 GPUs with replicas of two nothing else is wrong than that the optimizer is whole."""
    verdict = judge(asked, parse_layout(["dp8", "tp2"], asked), found)
    assert "does not fit" in verdict.why_not and verdict.nearest
    near = verdict.nearest.layout
    assert (near.dp, near.tp) == (8, 2) and near.zero


def test_a_small_cluster_is_a_node() -> None:
    small = problem("llama2-7b", "4xH100", 8)
    assert (
        "does not divide a node"
        not in judge(small, parse_layout(["tp3"], small), Plan((), ())).why_not
    )
    three = problem("llama2-7b", "3xH100", 9)
    assert "whole heads" in judge(three, parse_layout(["tp3"], three), Plan((), ())).why_not


@pytest.mark.parametrize("word", ["xp3", "tp0", "tp", "fast", "tp--2", "zero4"])
def test_an_unknown_word_is_refused(word: str, asked: Problem) -> None:
    with pytest.raises(ValueError, match="tp8 pp4 dp16 zero1"):
        parse_layout([word], asked)


def test_a_layout_is_judged_and_the_nearest_better_one_is_named(
    asked: Problem, found: Plan
) -> None:
    slow = judge(asked, parse_layout(["tp8", "zero1", "full"], asked), found)
    assert slow.seconds and slow.memory and not slow.why_not
    assert slow.nearest and slow.nearest.seconds < slow.seconds
    assert "The nearest faster one" in slow.text()
    assert found.best
    best = judge(asked, found.best.layout, found)
    assert best.nearest is None and "nothing else is better" in best.text()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("tp16", "exceeds a node"),
        ("tp8 dp3", "24 GPUs, and there are 16: dp2 takes all"),
        ("tp3", "a replica takes 3 GPUs, which do not divide 16"),
        ("tp8 pp4", "a replica takes 32 GPUs, and there are 16"),
        ("tp8 mbs3", "in micro-batches of 3"),
        ("tp1 pp1", "does not fit"),
        ("pp16 dp1 mbs8", "leave some of 16 stages idle"),
    ],
)
def test_what_cannot_be_is_said_with_what_works(
    words: str, why: str, asked: Problem, found: Plan
) -> None:
    verdict = judge(asked, parse_layout(words.split(), asked), found)
    assert why in verdict.why_not and verdict.seconds is None
    assert verdict.nearest and "not possible" in verdict.text()


def test_distance_counts_doublings() -> None:
    one = Layout(pp=2, dp=4)
    assert distance(one, one) == 0
    assert distance(one, Layout(pp=4, dp=2)) == 2
    assert 0 < distance(one, replace(one, zero=1)) < 1


def test_layouts_in_words() -> None:
    assert strategy_of(Layout()) == "one GPU"
    assert strategy_of(Layout(dp=8, zero=3, recompute="full")) == "FSDP + recomputation"
    assert strategy_of(Layout(pp=2, dp=2, tp=2, zero=1)) == "TP + PP + ZeRO-1"


def test_plans_do_not_name_the_same_twice(found: Plan) -> None:
    shapes = [
        (c.layout.pp, c.layout.tp, c.layout.schedule, c.layout.micro_batch_size / c.layout.cp)
        for c in found.choices
    ]
    assert len(set(shapes)) == len(shapes)


def test_a_bill() -> None:
    bill = Bill(rate=1e6, gpus=100, watts=700, tokens=8.64e10, price=2.0)
    assert (bill.days, bill.gpu_hours) == (pytest.approx(1), pytest.approx(2400))
    assert (bill.megawatt_hours, bill.money) == (pytest.approx(1.68), pytest.approx(4800))
    assert "1 days" in bill.text() and "cost 4,800 at 2" in bill.text()
    assert "MWh" not in replace(bill, watts=0).text()
