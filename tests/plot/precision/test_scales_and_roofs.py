"""Pictures of scales, roofs and seeds say the numbers that they were given."""

from __future__ import annotations

import pytest

from course_lib.plot import block_scales, roofline, seed_points
from course_lib.trace import Refusal


def test_a_roof_says_where_memory_ends() -> None:
    picture = roofline(
        {"bf16": 1000e12, "FP8": 2000e12}, 4e12, {"a vector": ("bf16", 1.0)}, "A GPU"
    )
    assert "bf16: 1000 TFLOP/s from 250 operations per byte on." in picture.alt
    assert "a vector: 1 operations per byte, at most 4 TFLOP/s." in picture.alt
    with pytest.raises(Refusal):
        roofline({"bf16": 1e12}, 1e12, {"a": ("FP8", 1.0)}, "A GPU")


def test_scales_count_what_is_lost() -> None:
    row = [4.0, 0.01, -2.0, 0.02]
    ways = {"one": ([0.5] * 4, [6.0] * 4, [4.0, 0.0, -2.0, 0.0]),
            "two": ([0.001] * 4, [6.0] * 4, row)}  # fmt: skip
    alt = block_scales(row, ways).alt
    assert "one: 2 of 4 numbers become zero." in alt and "two: 0 of 4" in alt
    with pytest.raises(Refusal):
        block_scales(row, {"short": ([1.0], [1.0], [1.0])})


def test_seeds_have_a_mean_and_ends() -> None:
    assert "x: mean 2, from 1 to 3." in seed_points({"x": [1.0, 2.0, 3.0]}, "loss").alt
    with pytest.raises(Refusal):
        seed_points({"x": []}, "loss")
