"""The map of layouts: a mark for each, the fastest that fits by its name."""

from __future__ import annotations

import pytest

from course_lib.plot import layout_map
from course_lib.plot.plan.layout_map import Place

WAYS = {"small": Place(20e9, 9.0), "fast": Place(60e9, 7.0), "large": Place(90e9, 5.0)}


def test_the_fastest_that_fits_is_named_and_not_the_fastest_of_all() -> None:
    picture = layout_map(WAYS, 77e9)
    assert "3 layouts by memory and time; 2 fit into 77.0 GB." in picture.alt
    assert "The fastest of them is fast: 60.0 GB, 7.0 s." in picture.alt


def test_simple_sums_are_marks_of_their_own() -> None:
    sums = {name: Place(one.memory * 0.9, one.seconds * 0.9) for name, one in WAYS.items()}
    alone, both = layout_map(WAYS, 77e9), layout_map(WAYS, 77e9, sums)
    assert both.svg.count("<path") >= alone.svg.count("<path") + 2 * len(sums)


def test_nothing_fits_and_nothing_is_there() -> None:
    assert "0 fit" in layout_map(WAYS, 1e9).alt
    with pytest.raises(ValueError, match="no layout"):
        layout_map({}, 77e9)
