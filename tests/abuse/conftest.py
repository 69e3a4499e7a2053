"""Seeded cases for the fuzz tests: `COURSE_FUZZ` says how many, a failure says how to repeat it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

import pytest

from course_lib.grade.catalog import Entry, read_suite

CPU_SECONDS = 20  # of this process, for one case; a case takes milliseconds

Case = Callable[[Random], object]
Fuzz = Callable[[int, Case], None]


@contextmanager
def cpu_limit(seconds: float) -> Iterator[None]:
    """Ends what computes for too long, however slow the machine; waiting is not counted."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise AssertionError(f"no end after {seconds} s of computing")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


@pytest.fixture
def fuzz(request: pytest.FixtureRequest) -> Fuzz:
    """`fuzz(count, case)`: calls `case` with as many seeded random numbers, or as COURSE_FUZZ says.

    The n-th case is the same in every run; COURSE_FUZZ_SEED=n runs that case alone.
    """

    def run(count: int, case: Case) -> None:
        alone = os.environ.get("COURSE_FUZZ_SEED")
        count = max(1, int(os.environ.get("COURSE_FUZZ", count)))
        for seed in [int(alone)] if alone else range(count):
            try:
                with cpu_limit(CPU_SECONDS):
                    case(Random(seed))
            except BaseException:
                where = request.node.nodeid
                print(f"case {seed} failed; COURSE_FUZZ_SEED={seed} pytest '{where}' repeats it")
                raise

    return run


class Witness:
    """Hears of what must not happen; an audit hook stays for good, so it listens only when asked.

    Args:
        forbidden: whether an event with its arguments is one that must not happen.
    """

    def __init__(self, forbidden: Callable[[str, tuple[Any, ...]], bool]) -> None:
        self._forbidden = forbidden
        self.watching, self.seen = False, list[str]()
        sys.addaudithook(self._hear)

    def _hear(self, event: str, args: tuple[Any, ...]) -> None:
        if self.watching and self._forbidden(event, args):
            self.seen.append(f"{event} {str(args)[:99]}")

    @contextmanager
    def look(self) -> Iterator[None]:
        """Nothing forbidden happens inside."""
        self.seen.clear()
        self.watching = True
        try:
            yield
        finally:
            self.watching = False
        assert self.seen == []


@pytest.fixture(scope="session")
def listen() -> type[Witness]:
    """`listen(forbidden)`: a witness; a test file cannot import it from here."""
    return Witness


@pytest.fixture
def double(tmp_path: Path) -> Entry:
    """The small exercise `double` and a right answer to it, in a course folder of its own."""
    suite = tmp_path / "grading" / "suites" / "99_test" / "double.py"
    suite.parent.mkdir(parents=True)
    source = Path(__file__).parents[1] / "grade" / "suites" / "99_test" / "double.py"
    suite.write_bytes(source.read_bytes())
    entry = read_suite(suite, tmp_path)
    entry.path.parent.mkdir(parents=True)
    entry.path.write_text("def double(tensor, group):\n    return tensor + tensor\n")
    return entry
