"""What ranks hold before and after a collective: only what is true is drawn."""

from __future__ import annotations

import pytest

from course_lib import plot
from course_lib.plot.collectives.before_after import WORDS, result
from course_lib.trace import Refusal

WHOLE = [[1, 2, 3], [10, 20, 30], [100, 200, 300]]
OWN = [[1, 0, 0], [0, 20, 0], [0, 0, 300]]
FIRST = [WHOLE[0], [0, 0, 0], [0, 0, 0]]
BEFORE = dict(zip(WORDS, (FIRST, WHOLE, OWN, WHOLE, WHOLE), strict=True))
AFTER = {
    "broadcast": [WHOLE[0]] * 3,
    "reduce_scatter": [[111, 0, 0], [0, 222, 0], [0, 0, 333]],
    "all_gather": [[1, 20, 300]] * 3,
    "all_reduce": [[111, 222, 333]] * 3,
    "all_to_all": [[1, 10, 100], [2, 20, 200], [3, 30, 300]],
}


@pytest.mark.parametrize("name", WORDS)
def test_each_collective_does_what_its_caption_says(name: str) -> None:
    assert result(name, BEFORE[name]) == AFTER[name]
    wrong = [row[:] for row in AFTER[name]]
    wrong[2][2] += 1
    with pytest.raises(Refusal, match="picture of"):
        plot.before_and_after({name: (BEFORE[name], wrong)})


def test_a_sum_is_grey_and_a_piece_has_its_ranks_colour() -> None:
    player = plot.before_and_after({name: (BEFORE[name], AFTER[name]) for name in WORDS}, still=3)
    before, _, after = player.frames[3].parts[0].partition(">after<")
    assert plot.rank_color(1) in before and plot.rank_color(1) not in after
    assert after.count(">222<") == 3 and "the sum" in player.frames[3].caption
    with pytest.raises(Refusal, match="gather"):
        plot.before_and_after({"gather": (WHOLE, WHOLE)})
