"""Intervals behave as the sets of moments that they stand for."""

from __future__ import annotations

import random

import pytest

from course_lib.trace.intervals import Interval, clip, intersect, length, overlap, subtract, union


def test_what_overlaps_or_touches_becomes_one() -> None:
    assert union([(3, 4), (0, 1), (1, 2), (0, 1.5)]) == [(0, 2), (3, 4)]
    assert union([]) == []
    assert length([(0, 2), (3, 4)]) == 3


def test_both_and_left() -> None:
    assert intersect([(0, 2), (3, 4)], [(1, 3.5)]) == [(1, 2), (3, 3.5)]
    assert overlap([(0, 2), (3, 4)], [(1, 3.5)]) == pytest.approx(1.5)
    assert subtract([(0, 10)], [(1, 2), (4, 6), (9, 12)]) == [(0, 1), (2, 4), (6, 9)]
    assert subtract([(0, 1), (2, 3)], [(0, 5)]) == []
    assert subtract([(0, 1)], []) == [(0, 1)]
    assert intersect([(0, 1)], [(1, 2)]) == [], "what only touches has no moment in common"


def moments(intervals: list[Interval]) -> set[int]:
    return {moment for begin, end in intervals for moment in range(int(begin), int(end))}


@pytest.mark.parametrize("seed", range(20))
def test_they_are_sets(seed: int) -> None:
    dice = random.Random(seed)

    def draw() -> list[Interval]:
        begins = [dice.randrange(60) for _ in range(dice.randrange(8))]
        return [(begin, begin + dice.randrange(1, 9)) for begin in begins]

    first, second = union(draw()), union(draw())
    assert moments(intersect(first, second)) == moments(first) & moments(second)
    assert moments(subtract(first, second)) == moments(first) - moments(second)
    assert length(first) == len(moments(first))
    assert clip(first, 10, 40) == intersect(first, [(10, 40)])
    assert clip(first, 40, 10) == []
    both = overlap(first, second) + length(subtract(first, second))
    assert both == length(first)
