"""`%%ranks N --cluster` in a real kernel: an interrupt ends it, and the kernel goes on."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from course_lib.ranks.magic.simulated import simulated_cell
from tests.tiers import sampled

sys.path.insert(0, str(Path(__file__).parents[1]))
kernels = importlib.import_module("kernels")

LINE = "%%ranks 16 --cluster 2x8xH100 --equal dp2,tp8*\n"
BODIES = {
    "operations": "x = torch.zeros(64, 64)\nwhile True:\n    x = x @ x",
    "collectives": "from course_lib.comm import all_reduce\nwhile True:\n"
    "    all_reduce(torch.zeros(8), group)",
    "python": "while True:\n    pass",
    "one rank in python": "from course_lib.comm import barrier\nwhile rank:\n    pass\n"
    "barrier(group)",
    "callbacks": "import weakref\nclass Thing: pass\nwhile True:\n    thing = Thing()\n"
    "    seen = weakref.ref(thing, lambda _: [n * n for n in range(99999)])",
    "all that can be caught": "while True:\n    try:\n        torch.zeros(8) + 1\n"
    "    except Exception:\n        pass",
}  # fmt: skip
AFTER = (
    "import threading, torch\n"
    "names = {t.name for t in threading.enumerate() if t.name.startswith('simulated')}\n"
    "torch.tensor([1.5]).item(), torch.zeros(2).sum().item(), len(names)"
)


@pytest.fixture(scope="module")
def kernel() -> Iterator[Any]:
    started = kernels.Kernel()
    assert started.run("%%ranks 4 --cluster 1x8xH100\ntorch.zeros(1)").status == "ok"
    yield started
    started.close()


def at(seconds: float, act: Callable[[], None]) -> Callable[[float], None]:
    """A tick that acts once, after some seconds."""
    done: list[bool] = []

    def tick(now: float) -> None:
        if now >= seconds and not done:
            done.append(True)
            act()

    return tick


@pytest.mark.parametrize("body", sampled(BODIES, 2))
def test_an_interrupt_gives_the_prompt_back(kernel: Any, body: str) -> None:
    answer = kernel.run(LINE + BODIES[body], timeout=30, tick=at(1.5, kernel.interrupt))
    assert answer.status == "error" and "Interrupted" in answer.text
    assert "course_lib" not in answer.text, "a frame of the runtime is in the reader's traceback"
    assert kernel.run(AFTER).text == "(1.5, 0.0, 0)", "something of the simulation is left"
    again = kernel.run(LINE + "from course_lib.comm import all_reduce\n"
                       "x = torch.tensor(1)\nall_reduce(x, group)\nint(x)")  # fmt: skip
    assert again.status == "ok" and "16" in again.text, again.text


@pytest.mark.parametrize(
    ("cell", "printed"),
    [
        ("def f(x: int): ...\nf.__annotations__['x'] is int", "True"),
        ("world_size;", ""),
        ("import asyncio\nawait asyncio.sleep(0)\nrank", "1"),
        ("print(1, 2, sep=None, end=None, file=None)", "1 2"),
        ("world_size", "2"),
    ],
)
def test_a_cell_means_what_it_means_on_real_ranks(cell: str, printed: str) -> None:
    outcome = simulated_cell(cell, "Cell In[1]", 2, "1x8xH100")
    assert outcome.verdict == "", outcome.story()
    assert outcome.output[1].decode().strip() == printed


def test_a_cell_that_is_no_python_is_told_as_on_real_ranks() -> None:
    outcome = simulated_cell("x =", "Cell In[1]", 2, "1x8xH100")
    assert outcome.verdict == "raised"
    assert "SyntaxError" in outcome.story() and "course_lib" not in outcome.story()
