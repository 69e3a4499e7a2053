"""Pictures of sending less: their words have the records' numbers, and nothing is not drawn."""

from __future__ import annotations

from functools import partial

import pytest

from course_lib import plot
from course_lib.trace import Refusal


def test_the_words_have_the_numbers_of_the_records(pictures):
    assert "2 ranks train alone for 1 steps and meet, 1 times" in pictures["paths"].alt
    assert "from (0.00, 0.00) to (0.50, 0.50). minimum at (1.00, 1.00)." in pictures["paths"].alt
    assert "add up to 3.00. Sent: kept, 3.00." in pictures["sums"].alt
    assert pictures["thin"].alt == "In rank 1: M 2 × 2, P 2 × 1."
    assert "local: 8 B in 1 of 2 steps, at most 8 B" in pictures["by step"].alt
    assert "local: 977 KiB, loss 2.15 (2.10 to 2.20)" in pictures["tradeoff"].alt


@pytest.mark.parametrize(
    "draw",
    [
        partial(plot.worker_paths, [], [], {}, "none"),
        partial(plot.arrived_sums, [1.0], {"short": []}, "one"),
        partial(plot.low_rank, {"M": []}, "none"),
        partial(plot.bytes_by_step, {"DDP": [0, 0]}),
        partial(plot.bytes_and_losses, {"DDP": (8.0, [1.0])}, "local"),
    ],
)
def test_nothing_is_not_drawn(draw):
    with pytest.raises(Refusal, match="an empty chart"):
        draw()
