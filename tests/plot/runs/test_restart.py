"""The picture of a run that was killed and started again."""

from __future__ import annotations

import pytest

from course_lib import plot
from course_lib.trace import Refusal


def test_it_says_what_was_made_twice_and_where_it_went_on() -> None:
    alone = [5.0, 4.0, 3.0, 2.0, 1.5, 1.2]
    attempts = {"first": {1: 5.0, 2: 4.0, 3: 3.0}, "second": {3: 3.0, 4: 2.0, 5: 1.5, 6: 1.2}}
    picture = plot.restart_curves(alone, attempts, saved=(2,))
    assert "first: steps 1 to 3, loss 5.000 to 3.000." in picture.alt
    assert "second: steps 3 to 6, loss 3.000 to 1.200." in picture.alt
    assert picture.alt.endswith("Checkpoints after the steps 2. Run twice: 3.")


def test_a_run_that_never_went_back_has_no_checkpoints_to_show() -> None:
    picture = plot.restart_curves([5.0, 4.0], {"with faults": {1: 5.0}}, (), "the quiet run")
    assert picture.alt.startswith("Losses of 2 steps; the quiet run is the wide line below.")
    assert picture.alt.endswith("loss 5.000 to 5.000. Run twice: none.")
    assert "checkpoint" not in picture.alt.lower()


@pytest.mark.parametrize("attempts", [{}, {"first": {}}])
def test_without_a_step_there_is_nothing_to_draw(attempts: dict[str, dict[int, float]]) -> None:
    with pytest.raises(Refusal, match="without a step"):
        plot.restart_curves([1.0], attempts, ())
