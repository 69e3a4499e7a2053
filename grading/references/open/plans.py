"""What suites of open exercises share: cases for all, hidden ones, one plan for both ranks.

An answer's figure is taken over cases that are the same for everybody; whether it is valid is also
looked at on hidden ones.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from typing import Any

import torch

from course_lib.grade.suite import Run, describe

CASES = 12  # that the figure is taken over
SECONDS = 20.0  # of processor time on a rank, for all cases of a check
Draw = Callable[[int, int, int], list[int]]  # from, up to but not including, how many
Driver = Callable[..., Any]
Judge = Callable[[Run, Any, Any], Any]  # of the check's run, a case and its plan


def fixed(name: str) -> Draw:
    """Whole numbers that are the same for everybody.

    Args:
        name: of the exercise and the case.
    """
    digest = hashlib.sha256(name.encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:6], "big"))
    return lambda low, high, count: torch.randint(low, high, (count,), generator=generator).tolist()


def hidden(run: Run) -> Draw:
    """Whole numbers of the seed."""
    return lambda low, high, count: run.integers(low, high, count).tolist()


def ask(run: Run, drive: Driver, cases: Sequence[Any]) -> list[Any]:
    """The plan of each case, the same on two ranks, of which one begins with the last case.

    Args:
        run: of the check.
        drive: takes `cases`, returns a dict of `plans`.
        cases: lists of the function's arguments.
    """
    listed = [list(case) for case in cases]
    given = [{"cases": listed}, {"cases": listed[::-1]}]
    both = run(drive, given, world=2, cpu=SECONDS, wall=3 * SECONDS).column("plans")
    for number, (mine, other) in enumerate(zip(both[0], both[1][::-1], strict=True)):
        run.true(
            _text(mine) == _text(other),
            f"case {number}: two ranks that get the same case have different plans",
            expected=describe(mine),
            measured=describe(other),
            cause="ranks agree without a message if each computes the same: give a random "
            "generator a seed in each call (neither by `id` nor by `hash` of a text, which each "
            "process has its own of), look at no clock, and keep nothing between calls",
        )
    plans: list[Any] = both[0]
    return plans


def _text(plan: Any) -> str:
    """A plan, whatever it is, a tensor too; but not where in memory an object of it lies."""
    return re.sub("0x[0-9a-f]+", "", repr(plan))


def is_whole(value: Any, depth: int) -> bool:
    """Whether it is lists, or tuples, in lists to this depth, and in these whole numbers alone."""
    if depth == 0:
        return type(value) is int
    return isinstance(value, (list, tuple)) and all(is_whole(each, depth - 1) for each in value)


def judged(run: Run, drive: Driver, cases: Sequence[Any], judge: Judge) -> list[Any]:
    """What `judge` says of the plan of each case; it fails if one is not valid."""
    return [judge(run, *each) for each in zip(cases, ask(run, drive, cases), strict=True)]


def figure(run: Run, drive: Driver, name: str, case: Callable[[Draw], Any], value: Judge) -> float:
    """The mean of `value` over the exercise's cases that are the same for everybody."""
    found = judged(run, drive, [case(fixed(f"{name} {n}")) for n in range(CASES)], value)
    return mean(found)


def mean(values: Sequence[float]) -> float:
    """The mean over the cases."""
    return sum(values) / len(values)
