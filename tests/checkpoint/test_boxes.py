"""Boxes, held against every element one by one."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from course_lib.checkpoint.boxes import Box, boxes_of_range, check_cover
from course_lib.checkpoint.errors import CheckpointError

SHAPES = [(), (1,), (7,), (3, 4), (4, 1), (2, 3, 4), (3, 1, 5), (2, 2, 2, 3)]


def elements(box: Box) -> list[tuple[int, ...]]:
    """The indices in a box, row-major."""
    ranges = [range(o, o + s) for o, s in zip(box.offsets, box.sizes, strict=True)]
    return list(itertools.product(*ranges))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_range_is_a_few_boxes_in_order(shape: tuple[int, ...]) -> None:
    flat = elements(Box.whole(shape))
    for start, stop in itertools.combinations_with_replacement(range(len(flat) + 1), 2):
        boxes = boxes_of_range(shape, start, stop)
        assert [e for box in boxes for e in elements(box)] == flat[start:stop]
        assert len(boxes) <= max(1, 2 * len(shape) - 1)


def test_ranges_of_empty_tensors_are_no_boxes() -> None:
    for shape in [(0,), (0, 3), (3, 0), (2, 0, 4)]:
        assert boxes_of_range(shape, 0, 0) == []
        check_cover("empty", shape, [])


def random_box(shape: tuple[int, ...], dice: random.Random) -> Box:
    offsets = [dice.randrange(size) for size in shape]
    sizes = [dice.randint(1, size - o) for size, o in zip(shape, offsets, strict=True)]
    return Box(tuple(offsets), tuple(sizes))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_intersection_slices_and_range(shape: tuple[int, ...]) -> None:
    dice = random.Random(0)
    for _ in range(100):
        a, b = random_box(shape, dice), random_box(shape, dice)
        both = a.intersect(b)
        common = [e for e in elements(a) if e in set(elements(b))]
        assert (elements(both) if both else []) == common
        assert both == b.intersect(a)
        if both:
            at = [s.start for s in both.slices(a)]
            inside = both.moved([-o for o in a.offsets])
            assert list(inside.offsets) == at and inside.fits(a.sizes)
            places = [elements(a).index(e) for e in common]
            assert both.range_in(a) == range(places[0], places[-1] + 1)


@pytest.mark.parametrize("shape", [s for s in SHAPES if math.prod(s) > 1], ids=str)
def test_cover_is_found_out_by_counting(shape: tuple[int, ...]) -> None:
    """Random lists of boxes: right exactly if each element is counted once."""
    dice = random.Random(1)
    seen = set()
    for _ in range(300):
        cuts = sorted({0, math.prod(shape), *(dice.randrange(math.prod(shape)) for _ in range(2))})
        boxes = [b for x, y in itertools.pairwise(cuts) for b in boxes_of_range(shape, x, y)]
        if dice.random() < 0.5:
            boxes[dice.randrange(len(boxes))] = random_box(shape, dice)
        dice.shuffle(boxes)
        counted = sorted(e for box in boxes for e in elements(box))
        right = counted == elements(Box.whole(shape))
        seen.add(right)
        if right:
            check_cover("t", shape, boxes)
        else:
            with pytest.raises(CheckpointError, match="every element of t"):
                check_cover("t", shape, boxes)
    assert seen == {True, False}


def test_a_box_outside_is_refused() -> None:
    for box in [Box((1,), (3,)), Box((-1,), (3,)), Box((0, 0), (3, 1)), Box((0,), (-3,))]:
        with pytest.raises(CheckpointError, match="does not lie in the tensor"):
            check_cover("t", (3,), [box])
