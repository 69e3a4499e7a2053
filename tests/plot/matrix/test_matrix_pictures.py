"""Pictures of matrix optimizers: bars stand where the values are, and words are those of sums."""

from __future__ import annotations

import re

import pytest

from course_lib.plot import owner_loads, singular_value_steps
from course_lib.plot.player.style import BLUE, ORANGE
from course_lib.trace import Refusal

HISTORY = [[0.9, 0.4, 0.01], [0.72, 1.1, 0.03], [1.0, 0.9, 0.71]]


def test_a_bar_for_each_value_and_a_frame_for_each_step() -> None:
    player = singular_value_steps(HISTORY)
    assert len(player.frames) == 3 and player.still == 2
    for values, frame in zip(HISTORY, player.frames, strict=True):
        heights = [float(h) for h in re.findall(r'<rect [^>]*height="([\d.]+)"', frame.parts[0])]
        colors = re.findall(r'fill="(#\w+)"', frame.parts[0])
        assert len(heights) == 3
        assert heights.index(max(heights)) == values.index(max(values))
        assert colors.count(BLUE) == sum(0.7 <= value <= 1.2 for value in values)
        assert colors.count(ORANGE) == 3 - colors.count(BLUE)
    assert "2 of 3 between" in player.frames[1].parts[0]
    assert "from 0.030 to 1.10" in player.frames[1].caption


def test_the_busiest_owner_is_named_in_means() -> None:
    picture = owner_loads({"by count": [[4e9], [1e9, 1e9]], "by operations": [[3e9], [3e9]]})
    assert "by count: the busiest of 2 owners has 1.33 times the mean" in picture.alt
    assert "by operations: the busiest of 2 owners has 1.00 times the mean" in picture.alt
    assert "GFLOP" in picture._repr_html_() or "GFLOP" in repr(picture.__dict__)


@pytest.mark.parametrize("draw", [lambda: singular_value_steps([[1.0], [1.0, 2.0]]),
                                  lambda: singular_value_steps([]),
                                  lambda: owner_loads({}),
                                  lambda: owner_loads({"none": [[], []]})])  # fmt: skip
def test_nothing_to_draw_is_refused(draw) -> None:
    with pytest.raises(Refusal, match="would say nothing"):
        draw()
