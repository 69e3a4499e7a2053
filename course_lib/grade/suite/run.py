"""The fixture `run` of a suite: runs the learner's code on ranks and compares what comes back."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, NoReturn, TypeVar, cast

import torch

from course_lib.grade.checks import CheckFailed
from course_lib.grade.faults import RunFault
from course_lib.grade.judge.bench import Bench, Result
from course_lib.grade.judge.terms import Limits
from course_lib.grade.suite import places
from course_lib.grade.suite.compare import alike, compare, describe, other_type
from course_lib.grade.suite.traffic import Traffic
from course_lib.ranks.system.scratch import working_folder

Item = TypeVar("Item")


class Run(Traffic):
    """The fixture of one check.

    Args:
        bench: what the checks share.

    Attributes:
        results: of all runs so far.
        figure: what a check of an open exercise has measured; it sets it.
    """

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._draws = 0
        self._spread = False
        self._rank: int | None = None
        self._folders = ExitStack()
        self._folder: str | None = None  # the last one is in use
        self.results: list[Result] = []
        self.figure: float | None = None

    # --- running ---------------------------------------------------------------------------------
    def __call__(
        self,
        drive: Callable[..., Any],
        inputs: Mapping[str, Any] | Sequence[Mapping[str, Any]] = (),
        *,
        world: int = 1,
        cpu: float = 5.0,
        wall: float = 20.0,
        folder: str | None = None,
    ) -> Result:
        """Calls `drive(learner, group, **inputs)` on every rank.

        Args:
            drive: a function of the suite; what it returns must be made of tensors, numbers,
                strings, lists, tuples, sets and dicts.
            inputs: keyword arguments, the same for all ranks; or one dict for each rank.
            world: how many ranks.
            cpu: processor seconds that a rank may use.
            wall: seconds that the run may take.
            folder: working folder of the ranks (see `folder`); a fresh one if None.

        Raises:
            RunFault: the run did not end with an answer on every rank.
        """
        result = self.attempt(drive, inputs, world=world, cpu=cpu, wall=wall, folder=folder)
        if result.fault is not None:
            raise RunFault(result.fault, result.printed)
        return result

    def attempt(
        self,
        drive: Callable[..., Any],
        inputs: Mapping[str, Any] | Sequence[Mapping[str, Any]] = (),
        *,
        world: int = 1,
        cpu: float = 5.0,
        wall: float = 20.0,
        folder: str | None = None,
    ) -> Result:
        """The same, for runs that are expected to fail: look at `fault` of the result."""
        if isinstance(inputs, Mapping) or not inputs:
            given = [dict(cast(Mapping[str, Any], inputs or {})) for _ in range(world)]
        else:
            given = [dict(each) for each in inputs]
        if len(given) != world:
            raise ValueError(f"{len(given)} inputs for a world of {world} ranks")
        limits = Limits(cpu=cpu, wall=wall)
        spread = self._spread and not places.cuts_the_world(given)
        given = places.spread(given) if spread else given
        result = self._bench.result(drive.__name__, given, limits, folder)
        result = places.gathered(result) if spread else result
        self.results.append(result)
        return result

    def repeat_in_part(self, check: Callable[[Run], None]) -> None:
        """The check once more, each run on a part of a larger world, its ranks not ascending.

        The inputs are the same. The world has one rank more than the run asks for. Runs that cut
        their world themselves stay as they are.

        Raises:
            CheckFailed: it fails there; the message has the group's ranks.
            RunFault: so does a run.
        """
        self._draws, self._spread = 0, True
        self._new_folder()
        try:
            check(self)
        except (CheckFailed, RunFault) as error:
            raise places.said_of_group(error, self.results[-1].world) from None
        finally:
            self._spread = False

    @property
    def folder(self) -> str:
        """A folder that all runs of this check may share, for exercises that write files."""
        if self._folder is None:
            self._new_folder()
        assert self._folder is not None
        return self._folder

    def _new_folder(self) -> None:
        self._folder = self._folders.enter_context(working_folder(self._bench.folder))

    def close_folders(self) -> None:
        """Removes the folders, if there are any."""
        self._folders.close()

    # --- hidden inputs ---------------------------------------------------------------------------
    def random(
        self, shape: int | Sequence[int], dtype: torch.dtype = torch.float64
    ) -> torch.Tensor:
        """Normal random numbers; the n-th draw of every check is the same for one seed.

        So two checks that draw the same shapes have the same inputs, and share their runs.
        """
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        return torch.randn(shape, generator=self._generator(), dtype=torch.float64).to(dtype)

    def integers(self, low: int, high: int, shape: int | Sequence[int]) -> torch.Tensor:
        """Random int64 numbers from `low` up to, not including, `high`."""
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        return torch.randint(low, high, shape, generator=self._generator())

    def number(self, low: int, high: int) -> int:
        """One random whole number, as from `integers`: for hidden sizes."""
        return int(self.integers(low, high, 1))

    def _generator(self) -> torch.Generator:
        self._draws += 1
        text = f"{self._bench.seed}/{self._bench.subject.name}/{self._draws}"
        digest = hashlib.sha256(text.encode()).digest()
        return torch.Generator().manual_seed(int.from_bytes(digest[:6], "big"))

    # --- comparing -------------------------------------------------------------------------------
    def each(self, of_ranks: Iterable[Item]) -> Iterator[Item]:
        """What is of each rank, in rank order; what fails meanwhile is said to be of that rank."""
        outer = self._rank
        try:
            for self._rank, item in enumerate(of_ranks):
                yield item
        finally:
            self._rank = outer

    def close(
        self,
        actual: Any,
        expected: Any,
        what: str,
        *,
        rank: int | None = None,
        likely: Mapping[str, Any] | None = None,
        terms: int = 4,
    ) -> None:
        """Equal up to rounding: see `compare.compare`."""
        rank = self._rank if rank is None else rank
        compare(actual, expected, what, rank=rank, likely=likely, terms=terms)

    def steps(
        self,
        found: Any,
        right: Sequence[Any],
        what: str,
        *,
        likely: Mapping[str, Sequence[Any]] | None = None,
        terms: int = 4,
    ) -> None:
        """Equal up to rounding after every step.

        A known mistake that explains all steps is believed before one that explains the first.

        Args:
            found: what is there after each step.
            right: what should be.
            what: its name; {} in it stands for the step, from 1.
            likely: known wrong results, by step, each under the sentence that explains it.
            terms: as in `compare.tolerance`.
        """
        known = likely or {}
        whole = {why: steps for why, steps in known.items() if alike(found, steps, terms)}
        for step, wanted in enumerate(right):
            others = {why: steps[step] for why, steps in (whole or known).items()}
            name = what.replace("{}", str(step + 1))
            self.close(found[step], wanted, name, likely=others, terms=terms)

    def equal(
        self,
        actual: Any,
        expected: Any,
        what: str,
        *,
        rank: int | None = None,
        likely: Mapping[str, Any] | None = None,
    ) -> None:
        """Exactly equal: numbers, strings, lists of them, or tensors bit for bit."""
        if _same(actual, expected):
            return
        cause = next((why for why, other in (likely or {}).items() if _same(actual, other)), "")
        self.fail(
            f"{what} is not what it should be",
            rank=rank,
            expected=describe(expected),
            measured=describe(actual),
            cause=cause or other_type(actual, expected),
        )

    def at_most(
        self,
        actual: Any,
        limit: float,
        what: str,
        *,
        rank: int | None = None,
        cause: str = "",
    ) -> None:
        """A number that must not be above `limit`."""
        if isinstance(actual, (int, float)) and actual <= limit:
            return
        self.fail(
            f"{what} is too large",
            rank=rank,
            expected=f"at most {limit:,}",
            measured=f"{actual:,}" if isinstance(actual, (int, float)) else describe(actual),
            cause=cause,
        )

    def true(self, holds: bool, message: str, **said: Any) -> None:
        """Fails with `message` unless `holds`; `said` as in `fail`."""
        if not holds:
            self.fail(message, **said)

    def fail(
        self,
        message: str,
        *,
        rank: int | None = None,
        expected: str = "",
        measured: str = "",
        cause: str = "",
    ) -> NoReturn:
        """Ends the check as failed.

        Args:
            message: what was looked at.
            rank: on which rank; that which a loop over `each` has come to, if nothing is said.
            expected: what should be there.
            measured: what is there.
            cause: the likely reason.
        """
        rank = self._rank if rank is None else rank
        raise CheckFailed(message, rank, expected, measured, cause)


def _same(actual: Any, expected: Any) -> bool:
    if isinstance(expected, torch.Tensor):
        return (
            isinstance(actual, torch.Tensor)
            and actual.dtype == expected.dtype
            and torch.equal(actual, expected)
        )
    if isinstance(expected, (list, tuple)):
        return (
            isinstance(actual, (list, tuple))
            and len(actual) == len(expected)
            and all(_same(a, e) for a, e in zip(actual, expected, strict=True))
        )
    if isinstance(expected, dict):
        return (
            isinstance(actual, dict)
            and set(actual) == set(expected)
            and all(_same(actual[key], expected[key]) for key in expected)
        )
    return bool(type(actual) is type(expected) and actual == expected)
