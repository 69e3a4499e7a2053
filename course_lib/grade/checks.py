"""What a suite is made of: one exercise, its checks, and the way in which a check fails.

A suite holds `EXERCISE`, driver functions `drive(learner, group, **inputs) -> dict` that run on the
ranks, and check functions that take the fixture `run` and are decorated with `check`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, NamedTuple, TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., Any])

CODES = {
    "E": "equal to one process",
    "B": "bytes and calls",
    "M": "memory",
    "O": "order of events",
    "S": "schedule",
    "H": "must end",
    "P": "parity with torch",
    "X": "forbidden calls",
}


class Scale(NamedTuple):
    """What answers to an open exercise are measured by.

    Attributes:
        what: is measured, with its unit: `of the step that stages wait`.
        trivial: the figure of the simplest answer that is right.
        ours: the figure of the best answer that we know; on which side of `trivial` it lies says
            whether less is better.
    """

    what: str
    trivial: float
    ours: float

    def share(self, figure: float) -> float:
        """How much of the way from `trivial` to `ours` it is: above 1, it is better than ours."""
        return (self.trivial - figure) / (self.trivial - self.ours)


@dataclass(frozen=True)
class Exercise:
    """What a suite says about its exercise. Write it with literals only: it is read, not run.

    Its name and its lesson are those of the suite's file and folder.

    Attributes:
        title: a few words.
        core: whether it counts to the core of the course.
        hints: from a nudge to nearly the answer.
        minutes: how long it takes.
        order: its place in the lesson, from 1.
        defines: names that the learner's file must define; the exercise's name if empty.
        hidden_checks: how many checks a student's copy of the course lacks; `course release`
            writes these two numbers, nobody else.
        hidden_points: what those count.
        network: what carries the ranks' calls: `switch`, the judge's own; or `torch`, where the
            exercise is about torch.distributed itself. Then evidence is kept in the ranks.
        library: what of the course's library an answer may use: rooms (`comm`), and single names
            in others (`data.shard_indices`).
        own: what it has to write itself although it lies in such a room (`comm.copy_to_group`) or
            in torch (`torch.nn.SyncBatchNorm`).
        open: for an exercise without one right answer, the fields of its `Scale`. Its checks say
            whether an answer is valid; one of them takes the figure, by `run.figure`.
    """

    title: str
    core: bool
    hints: tuple[str, str, str]
    minutes: int
    order: int = 0
    defines: tuple[str, ...] = ()
    hidden_checks: int = 0
    hidden_points: int = 0
    network: str = "switch"
    library: tuple[str, ...] = ("comm",)
    own: tuple[str, ...] = ()
    open: tuple[str, float, float] | None = None

    @property
    def scale(self) -> Scale | None:
        """What answers are measured by; None if there are right ones and wrong ones."""
        return Scale(*self.open) if self.open else None

    @property
    def allowed(self) -> str:
        """What an answer may use, in a sentence for its starter and its card."""
        of_torch = [name for name in self.own if name.startswith("torch.")]
        ours = [name for name in self.own if name not in of_torch]
        but = f", but not {_listed(ours)}" if ours else ""
        rest = f"; of torch everything but {_listed(of_torch)}" if of_torch else ""
        return f"Your answer may use {_listed(self.library)} of `course_lib`{but}{rest}."


def _listed(names: Sequence[str]) -> str:
    words = [f"`{name}`" for name in names]
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]])) or "nothing"


@dataclass(frozen=True)
class Check:
    """What the decorators say about one check.

    Attributes:
        name: the function's name.
        title: what is checked, as the score card says it.
        points: what it counts.
        code: one of CODES.
        hidden: whether `course release` leaves it out of the students' copy.
        diagnosis: the likely cause of a failure, where the check itself finds none.
    """

    name: str
    title: str
    points: int
    code: str
    hidden: bool = False
    diagnosis: str = ""


def check(
    title: str, *, points: int, code: str, hidden: bool = False
) -> Callable[[Function], Function]:
    """Makes a function `check_...(run)` of a suite one check of its exercise.

    What it says is read from the suite's text (see `catalog.check_of`), not when it is called.
    """
    if code not in CODES:
        raise ValueError(f"check {title!r} has code {code!r}; known: {', '.join(CODES)}")
    return lambda function: function


def diagnosis(text: str) -> Callable[[Function], Function]:
    """The likely cause of a check's failure, for where the check itself finds none."""
    return lambda function: function


def in_part(function: Function) -> Function:
    """Repeats a check that has passed on a part of a larger world, its ranks not ascending.

    This is for answers that take a group (see `Run.repeat_in_part`).
    """

    @wraps(function)
    def both(run: Any) -> None:
        function(run)
        run.repeat_in_part(function)

    return cast(Function, both)


class CheckFailed(Exception):
    """A check that did not hold.

    Args:
        message: what was looked at, in one line.
        rank: on which rank; None if on all, or on none in particular.
        expected: what should be there.
        measured: what is there.
        cause: the likely reason.
    """

    def __init__(
        self,
        message: str,
        rank: int | None = None,
        expected: str = "",
        measured: str = "",
        cause: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.rank = rank
        self.expected = expected
        self.measured = measured
        self.cause = cause
