"""`%%ranks --types` in a real kernel: the table, a finding with its line, and a cell that fails."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
kernels = importlib.import_module("kernels")

CELL = """%%ranks --types
x = torch.arange(8.0).view(2, 4)
part = x.chunk(world_size, 1)[rank] @ torch.ones(4, 3).chunk(world_size, 0)[rank]
part.relu()
"""


@pytest.fixture(scope="module")
def kernel() -> Iterator[Any]:
    """A kernel with two ranks."""
    started = kernels.Kernel()
    assert started.run("%ranks 2").status == "ok"
    yield started
    started.close()


def test_table_and_finding_stand_below_the_cell(kernel: Any) -> None:
    answer = kernel.run(CELL)
    assert answer.status == "ok", answer.text
    assert "part    2×3    P      mm, line 3" in answer.text
    assert "line 4: relu of a partial sum on world" in answer.text


def test_a_cell_that_fails_shows_its_own_line_and_no_table(kernel: Any) -> None:
    answer = kernel.run("%%ranks --types\nx = torch.ones(3)\nraise ValueError('the fault')")
    assert answer.status == "error"
    assert "line 3" in answer.text
    assert "made by" not in answer.text
    assert "part    2×3" in kernel.run(CELL).text, "the next cell is recorded as well"


def test_without_it_nothing_is_recorded(kernel: Any) -> None:
    assert "made by" not in kernel.run(CELL.replace(" --types", "")).text
