"""Which call a second run is of: told by all of its input, where sums of inputs collide."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from course_lib.grade.checks import CheckFailed
from course_lib.grade.judge.bench import Bench
from course_lib.grade.judge.terms import Subject
from course_lib.grade.suite.run import Run
from course_lib.ranks import ForkServer
from grading.references.recompute.block_runs import runs_agree

Noted = list[torch.Tensor]


@pytest.fixture
def run(server: ForkServer, tmp_path: object) -> Run:
    return Run(Bench(server, Subject("x", ("x",), "x.py", "", "suite.py", ""), 0, str(tmp_path)))


def calls() -> list[Noted]:
    """Three calls, whose inputs have the same sum to the last bit, as layer norms often do."""
    first = torch.arange(48, dtype=torch.float64).reshape(8, 6) - 23.5  # exact in any order
    inputs = [first, first.flip(0), first.flip(1)]
    assert {float(each.sum()) for each in inputs} == {0.0}
    return [[each, *torch.randn(3, 8, 6, dtype=torch.float64)] for each in inputs]


def test_second_runs_find_their_first_runs(run: Run) -> None:
    firsts = calls()
    runs_agree(run, firsts + [list(each) for each in firsts[::-1]], 3, 3)


@pytest.mark.parametrize(
    ("slip", "words"),
    [
        (lambda mine, _: mine[::-1], "reverse order"),
        (lambda mine, _: [mine[-1]] * 3, "always the last one"),
        (lambda mine, _: [mine[0]] * 3, "always the first one"),
        (lambda _, other: list(other), "results of another call"),
    ],
)
def test_a_slip_has_its_name(slip: Callable[[Noted, Noted], Noted], words: str, run: Run) -> None:
    firsts = calls()
    wrong = [firsts[0][0], *slip(firsts[0][1:], firsts[1][1:])]
    with pytest.raises(CheckFailed) as failed:
        runs_agree(run, [*firsts, wrong], 3, 1)
    assert words in failed.value.cause and "call 1" in failed.value.message


def test_another_input_is_said(run: Run) -> None:
    firsts = calls()
    with pytest.raises(CheckFailed, match="another input"):
        runs_agree(run, [*firsts, [firsts[0][0] + 1e-15, *firsts[0][1:]]], 3, 1)
