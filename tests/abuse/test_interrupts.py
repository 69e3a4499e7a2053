"""Ctrl-C at random moments of a notebook: the next cell can always be used, and nothing is left.

`COURSE_INTERRUPTS` says how many (default 200), `COURSE_INTERRUPTS_SEED` which. Half of them come
from inside, while the cell itself runs. The others come from outside, as from JupyterLab's button,
and may fall into what IPython does before and after a cell, or between two cells.
"""

from __future__ import annotations

import importlib
import os
import queue
import random
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "ranks"))
kernels = importlib.import_module("kernels")

pytestmark = [pytest.mark.slow, pytest.mark.alone]

INTERRUPTS = int(os.environ.get("COURSE_INTERRUPTS", "200"))
SEED = int(os.environ.get("COURSE_INTERRUPTS_SEED", "0"))
AGAIN = 6.0  # seconds after which a second interrupt would be needed
LOAD = 5  # times as long on a machine that has other things to do

STARTS = "for _ in range(9):\n    get_ipython().run_cell_magic('ranks', '3 --fresh', '1')"
LARGE = "import torch\nbig = torch.ones(1 << 20)\nwhile True:\n    push(big=big)"
FAILING = """while True:
    try:
        pull("1 / 0")
    except Exception as error:
        if error.story.startswith("Interrupted"):
            raise
"""
# Each with the seconds in which the interrupt falls.
CELLS = {
    "start": ("%%ranks 3 --fresh\nrank", 0.4),
    "starts": (STARTS, 1),
    "resize": ("%ranks 2\n%ranks 3", 0.5),
    "computing": ("%%ranks 3\nwhile True:\n    pass", 0.5),
    "sleeping": ("%%ranks 3\nimport time\ntime.sleep(60)", 0.5),
    "collectives": ("%%ranks 3\nt = torch.ones(9)\nwhile True:\n    dist.all_reduce(t)", 0.5),
    "uneven": ("%%ranks 3\nif rank:\n    dist.barrier()\n__import__('time').sleep(60)", 0.7),
    "lock": ("%%ranks 3\nimport threading\nl = threading.Lock()\nl.acquire()\nl.acquire()", 0.5),
    "printing": ("%%ranks 3\nwhile True:\n    print('x' * 99)", 0.5),
    "displays": ("%%ranks 3\nwhile True:\n    display({'text/html': 'x' * 99})", 0.5),
    "pushes": ("for n in range(10**6):\n    push(x=n)", 0.5),
    "pulls": ("for n in range(10**6):\n    pull('rank')", 0.5),
    "large pushes": (LARGE, 0.5),
    "failing": (FAILING, 0.5),
    "run_on_ranks": ("run_on_ranks(lambda group: 1, 2)", 0.4),
    "short": ("%%ranks 3\nrank", 0.1),
    "torchrun": ("%%torchrun 2\nprint('done')", 3),
    "plain": ("sum(range(10**6))", 0.1),
}
CHECK = "%%ranks 3\nt = torch.ones(1)\ndist.all_reduce(t)\nprint('sum', int(t))"

# Pressed from inside, once the cell itself runs: then one interrupt must be enough.
PRESSES = """import os, signal, threading
class Presses:
    seconds, timer = 0.0, None
    def begin(self, info):
        if self.seconds:
            press = lambda: os.kill(os.getpid(), signal.SIGINT)
            self.timer, self.seconds = threading.Timer(self.seconds, press), 0.0
            self.timer.start()
    def end(self, result):
        if self.timer:
            self.timer.cancel()
presses = Presses()
get_ipython().events.register("pre_run_cell", presses.begin)
get_ipython().events.register("post_run_cell", presses.end)
"""


def open_files(kernel: Any) -> int:
    folder = Path(f"/proc/{kernel.pid}/fd")
    return len(os.listdir(folder)) if folder.exists() else 0


def from_inside(kernel: Any, cell: str, moment: float) -> Any:
    """Interrupts a cell once; a second time would not be right."""
    kernel.run(f"presses.seconds = {moment}")
    return kernel.run(cell, moment + AGAIN * LOAD)


def from_outside(kernel: Any, cell: str, moment: float) -> Any:
    """Interrupts a kernel, and again if its cell has not heard it: Jupyter may have ignored it."""
    due = [moment, moment + AGAIN, moment + 2 * AGAIN]

    def press(seconds: float) -> None:
        if due and seconds > due[0]:
            del due[0]
            kernel.interrupt()

    exact = threading.Timer(moment, press, [moment + 0.001])
    exact.start()
    try:
        answer = kernel.run(cell, moment + AGAIN * LOAD, press)
    except (
        queue.Empty
    ):  # it fell into ipykernel's own sending: the cell has ended, its reply is lost
        answer = kernels.Answer("lost")
    exact.join()  # between two cells, if this one was over before
    return answer


def check(kernel: Any) -> Any:
    """A cell of ranks; once more if Jupyter has taken it for one that waited behind the other."""
    answer = kernel.run(CHECK, 60 * LOAD)
    return kernel.run(CHECK, 60 * LOAD) if answer.status == "aborted" else answer


def test_the_next_cell_can_always_be_used() -> None:
    dice = random.Random(SEED)
    kernel = kernels.Kernel()
    seen: Counter[str] = Counter()
    try:
        assert kernel.run(PRESSES).status == "ok"
        assert kernel.run(CHECK, timeout=240).status == "ok"
        before = open_files(kernel)
        while seen.total() < INTERRUPTS:
            name, way = dice.choice(list(CELLS)), dice.choice([from_inside, from_outside])
            cell, within = CELLS[name]
            moment = dice.uniform(0.05 if way is from_inside else 0, within)
            about = f"{name} {way.__name__} after {moment:.3f} s; {seen.total()} were well"
            try:
                answer, after = way(kernel, cell, moment), check(kernel)
            except TimeoutError as error:
                pytest.fail(f"{about}, seed {SEED}: {error}")
            assert after.status == "ok" and "ranks 0–2 │ sum 3" in after.text, (
                f"{about}, seed {SEED}\n{answer.text}\n---\n{after.text}"
            )
            seen[f"{name} {way.__name__} {answer.status}"] += 1
        assert open_files(kernel) - before < 8, "files stay open"
    finally:
        print(f"{seen.total()} interrupts were well: {dict(seen)}")
        kernel.close()
    assert kernels.gone_within(kernel.tag, 20) == []
