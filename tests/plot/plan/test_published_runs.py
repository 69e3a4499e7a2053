"""The chart of published runs: one dot for each, and words with the sets' errors."""

from __future__ import annotations

import pytest

from course_lib.plan.published.scores import Scored, summary
from course_lib.plot import published_runs


def scored(family: str, *errors: float) -> list[Scored]:
    return [
        Scored({"family": family, "id": str(n)}, 100 * (1 + error), 100.0 + n, (90.0, 110.0))
        for n, error in enumerate(errors)
    ]


def test_a_dot_for_each_run_and_the_errors_in_words() -> None:
    first, second = scored("megatron_sc21_t1", 0.02, -0.03, 0.01), scored("simumax_b200", 0.1)
    picture = published_runs([*first, *second])
    for name, mine in {"Megatron-LM, SC21 table 1": first, "B200": second}.items():
        found = summary(mine)
        assert (
            f"{name}: {len(mine)} runs, median error {100 * found.middle[0]:.1f} %" in picture.alt
        )
        assert f"largest {100 * found.worst[0]:.1f} %" in picture.alt
    assert picture.svg.count("<use ") >= len(first) + len(second)


def test_no_runs_are_refused() -> None:
    with pytest.raises(ValueError, match="published runs"):
        published_runs(scored("of nobody", 0.1))
