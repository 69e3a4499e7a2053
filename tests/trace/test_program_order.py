"""Calls of several ranks in one row: every rank's own order, and no clock."""

from __future__ import annotations

import random

import pytest

from course_lib.trace import program_order


def test_every_rank_keeps_its_order() -> None:
    assert program_order([["a", "b", "d"], ["a", "c", "d"], ["c", "d"]]) == ["a", "c", "b", "d"]


def test_ties_go_to_the_earlier_place_and_then_to_the_lower_rank() -> None:
    """Two pairs of ranks that have nothing to do with each other take turns."""
    pairs = [["a0", "a1"], ["a0", "a1"], ["b0", "b1"], ["b0", "b1"]]
    assert program_order(pairs) == ["a0", "b0", "a1", "b1"]


def test_a_ranks_own_calls_come_before_one_that_it_shares() -> None:
    assert program_order([["shared"], ["first", "shared"]]) == ["first", "shared"]


def test_ranks_that_contradict_each_other_still_get_a_row() -> None:
    assert program_order([["dp", "tp"], ["tp", "dp"]]) == ["dp", "tp"]


@pytest.mark.parametrize("empty", [[], [[]], [[], []]])
def test_nothing_gives_nothing(empty: list[list[str]]) -> None:
    assert program_order(empty) == []


@pytest.mark.parametrize("seed", range(20))
def test_a_row_is_a_merge_of_all_programs(seed: int) -> None:
    """Programs cut out of one common row can all be followed at once."""
    rng = random.Random(seed)
    ranks = [sorted(rng.sample(range(30), rng.randint(0, 30))) for _ in range(5)]
    row = program_order(ranks)
    assert sorted(row) == sorted(set().union(*ranks)) and len(row) == len(set(row))
    for calls in ranks:
        assert [call for call in row if call in calls] == calls
