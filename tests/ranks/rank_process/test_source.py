"""The source of a cell as a rank runs it, on real ranks: its end, `await`, and no keyboard."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from course_lib.ranks import Outcome, Pool
from course_lib.ranks.rank_process.source import run_source

TASKS = """
import asyncio
async def later(value):
    await asyncio.sleep(0.01)
    return value
task = asyncio.create_task(later(rank))
await task
"""


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool(2) as started:
        yield started


def printed(outcome: Outcome) -> list[str]:
    assert not outcome.verdict, outcome.story()
    return [bytes(outcome.output[rank]).decode() for rank in sorted(outcome.output)]


def test_what_stands_before_a_semicolon_runs_and_is_not_shown() -> None:
    names: dict[str, Any] = {"calls": []}
    assert run_source("calls.append(1)\nlen(calls)", "Cell", names) == 1
    assert run_source("calls.append(2) or 7;", "Cell", names) is None
    assert names["calls"] == [1, 2]
    assert run_source("", "Cell", names) is None
    with pytest.raises(SyntaxError):
        run_source("x = (", "Cell", names)


def test_await_stands_outside_functions(pool: Pool) -> None:
    """One loop for the cell: its last line may wait for a task that an earlier one has made."""
    assert printed(pool.run_cell(TASKS)) == ["0\n", "1\n"]
    assert printed(pool.run_cell("await later(5)\nprint('done')")) == ["done\n"] * 2
    outcome = pool.run_cell("async def fails():\n    1 / 0\nawait fails()")
    assert "ZeroDivisionError" in outcome.story() and "asyncio" not in outcome.story()
    assert printed(pool.run_cell("rank")) == ["0\n", "1\n"]


@pytest.mark.parametrize(
    ("source", "asked"),
    [
        ("input('name? ')", "a line from the keyboard"),
        ("import sys\nsys.stdin.read()", "text from the keyboard"),
        ("import sys\nfor line in sys.stdin:\n    pass", "a line from the keyboard"),
        ("breakpoint()", "breakpoint()"),
        ("import pdb\npdb.set_trace()\nx = 1", "a line from the keyboard"),
    ],
)
def test_a_rank_has_no_keyboard(pool: Pool, source: str, asked: str) -> None:
    story = pool.run_cell(source, "Cell 1").story()
    assert f"asked: {asked} in a cell" in story and "push(name=...)" in story
    assert story.count("File ") == 1, "the reader's own line, and none of the debugger's"
    assert printed(pool.run_cell("print('goes on')")) == ["goes on\n"] * 2


def test_what_a_call_prints_can_be_watched(pool: Pool) -> None:
    seen: list[Outcome] = []

    def speak(group: Any) -> int:
        print("rank", group.rank)
        return int(group.rank)

    assert pool.run(speak, watch=seen.append) == [0, 1]
    assert printed(seen[-1]) == ["rank 0\n", "rank 1\n"]
