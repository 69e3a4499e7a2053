"""Two recorded runs as a picture: equal, parted, and those that cannot be laid side by side."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from course_lib.plot import run_difference
from course_lib.replay import RankLog, Recording
from course_lib.replay.entries import Call, Done, End, Entry, Start, Step
from course_lib.trace import Refusal


def run(bits: Sequence[str], world: int = 2, steps: int = 4) -> Recording:
    """An all-reduce a step; `bits` has what each rank gives in step 2."""
    logs = []
    for rank in range(world):
        entries: list[Entry] = []
        for step in range(steps):
            given = bits[rank] if step == 2 else "a"
            taken = "b" if step < 2 or set(bits) == {"a"} else "c"
            entries += [
                Step(step, step, "", {}, ()),
                Call(step, "all_reduce", "dp", tuple(range(world)), step, (4,), "float64", -1,
                     "sum", given, "a.py, line 3"),
                Done(step, taken),
            ]  # fmt: skip
        logs.append(RankLog(Start(rank, world), [*entries, End()]))
    return Recording(logs)


def test_what_began_it_is_marked_and_what_follows_differs() -> None:
    picture = run_difference(run("aa"), run("ax"))
    assert picture.svg.count(">begins<") == 1
    assert picture.svg.count(">≠<") == 3  # rank 0 in steps 2 and 3, rank 1 in step 3
    assert picture.svg.count(">=<") == 4
    assert picture.alt.startswith("2 ranks in 4 steps. Step 2, rank 1, call 2 (all_reduce of 4 ")


def test_equal_runs_are_all_equal() -> None:
    picture = run_difference(run("aa"), run("aa"))
    assert picture.svg.count(">=<") == 8 and ">≠<" not in picture.svg
    assert "Equal to the bit in 4 steps and 8 calls on 2 ranks." in picture.alt


@pytest.mark.parametrize("other", [run("aaa", 3), run("aa", steps=0)])
def test_what_cannot_be_laid_side_by_side_is_refused(other: Recording) -> None:
    with pytest.raises(Refusal):
        run_difference(run("aa"), other)
