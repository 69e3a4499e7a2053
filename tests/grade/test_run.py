"""What a check may call that needs no ranks: loops that know the rank, steps, causes, its head."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
import torch

from course_lib.grade.catalog import read_suite
from course_lib.grade.checks import CheckFailed
from course_lib.grade.faults import Fault, RunFault
from course_lib.grade.judge.bench import Bench
from course_lib.grade.suite import Run, because

SUITE = '''
EXERCISE = Exercise(title="Sum", core=False, minutes=1, hints=("a", "b", "c"))

@check("the sum", points=2, code="E", hidden=True)
@diagnosis("add it up")
@in_part
def check_sum(run):
    """E: a number."""

@check("no bytes", points=1, code="B")
def check_bytes(run):
    """B: none."""
'''


@pytest.fixture
def run() -> Run:
    return Run(cast(Bench, None))  # nothing is run


def _rank(run: Run) -> int | None:
    with pytest.raises(CheckFailed) as failed:
        run.equal(1, 2, "the number")
    return failed.value.rank


def test_a_loop_over_ranks_says_whose_failure_it_is(run: Run) -> None:
    seen: list[Any] = []
    for value in run.each("ab"):
        inner = [(_rank(run), each) for each in run.each([7])]
        seen.append((value, _rank(run), inner))
    assert seen == [("a", 0, [(0, 7)]), ("b", 1, [(0, 7)])]
    assert _rank(run) is None
    for _ in run.each("ab"):
        break
    assert _rank(run) is None
    for _ in run.each("a"):
        with pytest.raises(CheckFailed) as failed:
            run.close(1.0, 2.0, "the number", rank=3)
        assert failed.value.rank == 3


def test_a_mistake_that_explains_all_steps_is_believed_first(run: Run) -> None:
    steps = [[torch.tensor([float(step)])] for step in range(3)]
    run.steps(steps, steps, "the weights after step {}")
    wrong = [steps[0], [torch.tensor([5.0])], [torch.tensor([6.0])]]
    likely = {"one step": [steps[0], wrong[1], steps[2]], "all of them": wrong}
    with pytest.raises(CheckFailed, match=r"after step 2\[0\] has the wrong value") as failed:
        run.steps(wrong, steps, "the weights after step {}", likely=likely)
    assert failed.value.cause == "all of them"
    with pytest.raises(CheckFailed) as failed:
        run.steps(wrong, steps, "step {}", likely={"one step": likely["one step"]})
    assert failed.value.cause == "one step"


def test_a_run_that_breaks_off_gets_the_cause_that_the_suite_knows() -> None:
    with pytest.raises(RunFault) as broken, because(deadlock="{} All must send."):
        raise RunFault(Fault("deadlock", "they wait", cause="Rank 0 waits."), "printed")
    assert broken.value.fault.cause == "Rank 0 waits. All must send."
    assert broken.value.output == "printed"
    with pytest.raises(RunFault) as broken, because(cpu="too many"):
        raise RunFault(Fault("wall", "no answer"))
    assert broken.value.fault.cause == ""


def test_the_head_of_a_check_is_read_without_running_it(tmp_path: Path) -> None:
    path = tmp_path / "07_sums" / "sum_up.py"
    path.parent.mkdir()
    path.write_text(SUITE)
    entry = read_suite(path, tmp_path)
    assert (entry.name, entry.lesson, entry.place) == ("sum_up", "07_sums", "07_sums/sum_up.py")
    first, second = entry.checks
    assert (first.title, first.points, first.hidden) == ("the sum", 2, True)
    assert first.diagnosis == "add it up"
    assert (second.code, second.hidden, second.diagnosis) == ("B", False, "")
