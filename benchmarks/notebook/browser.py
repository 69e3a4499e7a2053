"""Moves of steppers and explorers in a real JupyterLab: from the key to the painted picture.

The time of a move runs from the key's own time stamp to the first task after the animation frame
that shows another picture; what a screen adds is not in it. Peer is the slider that a notebook
would have otherwise: ipywidgets' `interact` and a schedule redrawn by matplotlib, in the same page
and kernel, by turns. `held key` presses 30 times a second for more than three seconds. Of a stepper
it counts the frames that were asked for and never painted. Of an explorer, whose kernel may leave
frames out, it counts keys that did not move the slider, and 1 more if the last picture is not that
of the last position; `after a held key` is the time to that picture. Needs Playwright and a system
Chromium (`make browser`); COURSE_CHROMIUM and COURSE_JUPYTER may name other programs.
"""

from __future__ import annotations

import random
import re
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import nbformat
from nbformat.v4 import new_code_cell, new_notebook

from benchmarks.notebook.lab import Missing, Notebook, Server, chromium
from benchmarks.notebook.launch import quantile
from benchmarks.row import Row

TURNS, MOVES = 4, 15  # turns of each picture, and moves in a turn
RATE, HELD = 30, 100  # keys in a second, and how many of them
PATIENCE_MS = 60_000
IMPORTS = """
import ipywidgets
import matplotlib.pyplot as plt
from course_lib import plot
from course_lib.schedule import one_f_one_b, simulate
from course_lib.plot.player.player import Player
"""
LONG = """
once = plot.schedule_grid(simulate(one_f_one_b(4, 32)))
Player(once.size, once.background, once.places, once.frames * 2, title="long", alt=once.alt)
"""
MATPLOTLIB = """
def draw(m):
    figure, axes = plt.subplots(figsize=(8, 2.6))
    for rank, slots in enumerate(simulate(one_f_one_b(4, m)).slots):
        begins, ends = [slot.begin for slot in slots], [slot.end for slot in slots]
        colors = ["#0072B2" if slot.action.kind == "F" else "#E69F00" for slot in slots]
        widths = [end - begin for begin, end in zip(begins, ends)]
        axes.barh([rank] * len(slots), widths, left=begins, color=colors, edgecolor="white")
        for slot in slots:
            middle, number = (slot.begin + slot.end) / 2, slot.action.micro
            axes.text(middle, rank, str(number), ha="center", va="center", fontsize=7)
    axes.invert_yaxis()
    plt.show()

ipywidgets.interact(draw, m=ipywidgets.IntSlider(8, 1, 16));
"""


@dataclass(frozen=True)
class Mover:
    """A picture with something to move.

    Attributes:
        name: as the rows have it.
        source: of the cell that makes it.
        place: CSS of what holds the picture.
        sliders: labels, and how many steps each can go to the right and back; the label of a
            stepper's slider is empty.
    """

    name: str
    source: str
    place: str
    sliders: tuple[tuple[str, int], ...]


STEPPERS = (
    Mover("stepper schedule", "plot.schedule_grid(simulate(one_f_one_b(4, 8)))", ".cp-stage",
          (("", 31),)),
    Mover("stepper mesh", 'plot.mesh_explorer({"pp": 2, "dp": 2, "tp": 2}, ranks_per_node=4)',
          ".cp-stage", (("", 3),)),
)  # fmt: skip
EXPLORERS = (
    Mover("explorer planner", "plot.explore_plan()", ".widget-html",
          (("sequence", 4), ("batch", 3), ("zero", 2), ("pp", 1))),
    Mover("explorer schedule", "plot.schedule_explorer()", ".widget-html",
          (("m, micro-batches", 8), ("p, ranks", 4), ("tB/tF", 10))),
    Mover("explorer mesh", "plot.explore_mesh()", ".widget-html",
          (("rank", 15), ("pp", 2), ("tp", 2))),
)  # fmt: skip
PEER = Mover("ipywidgets + matplotlib", MATPLOTLIB, ".widget-interact", (("m", 8),))
HOLD = Mover("stepper", LONG, ".cp-stage", (("", HELD),))


def to_and_fro(sliders: Sequence[tuple[str, int]]) -> Iterator[tuple[str, str]]:
    """Label and key of move after move: each slider to the right and back, for ever."""
    for label, steps in cycle(sliders):
        for key in ("ArrowRight", "ArrowLeft"):
            yield from [(label, key)] * steps


def never_painted(asked: Sequence[float], painted: Sequence[float]) -> int:
    """How many of the positions that keys led to were in no painted frame."""
    return len(set(asked) - set(painted))


def lost(asked: Sequence[float], before: float) -> int:
    """How many keys left the slider where it was; `asked` is its position after each."""
    return sum(now == last for now, last in zip(asked, [before, *asked], strict=False))


class Picture:
    """A mover on an open page.

    Args:
        notebook: with the mover's cell, not yet run.
        mover: what it is.
    """

    def __init__(self, notebook: Notebook, mover: Mover) -> None:
        self.page, self.mover = notebook.page, mover
        self.output = notebook.output(notebook.run(mover.source.strip()))
        self.place = self.output.locator(mover.place).last.element_handle()
        self.keys = to_and_fro(mover.sliders)
        self.pause = random.Random(0)  # moves begin anywhere between two frames of the screen
        if not mover.sliders[0][0]:
            self.slider("").press("Home")

    def slider(self, label: str) -> Any:
        """What takes the keys."""
        if not label:
            return self.output.get_by_role("slider")
        words = self.page.locator(".widget-label", has_text=re.compile(rf"^{re.escape(label)}$"))
        return self.output.locator(".widget-inline-hbox", has=words).locator(".noUi-handle")

    def moves(self, count: int) -> list[float]:
        """Milliseconds of each of so many moves.

        Raises:
            TimeoutError: a key did not change the picture.
        """
        return [self._move(label, key) for label, key in islice(self.keys, count)]

    def _move(self, label: str, key: str) -> float:
        self.slider(label).focus()
        self.page.wait_for_timeout(self.pause.uniform(80, 140))
        self.page.evaluate("place => { window.waiting = moves.move(place); }", self.place)
        self.page.keyboard.press(key)
        late = f"new Promise(done => setTimeout(() => done(null), {PATIENCE_MS}))"
        took = self.page.evaluate(f"() => Promise.race([window.waiting, {late}])")
        if took is None:
            raise TimeoutError(f"{key} on {label!r} did not change the {self.mover.name}")
        return float(took)

    def hold(self) -> dict[str, Any]:
        """What the page saw while keys came: see moves.js; and `before`, `sent`, `right`."""
        label, steps = self.mover.sliders[0]
        slider = self.slider(label)
        slider.focus()
        before = self.page.evaluate("place => moves.drawn(place)", self.place)
        keys = self._sent(steps)
        start = float(slider.evaluate("s => s.value ?? s.getAttribute('aria-valuenow')"))
        slider.evaluate(
            "(s, place) => { window.held = moves.hold(place,"
            " () => +(s.value ?? s.getAttribute('aria-valuenow'))); }",
            self.place,
        )
        self._press(keys)
        self.page.wait_for_function("() => window.held.quiet()", polling=100)
        log = dict(self.page.evaluate("() => window.held.end()"))
        back = self.page.evaluate("place => moves.drawn(place)", self.place) == before
        return {**log, "before": start, "sent": len(keys), "right": back}

    def _sent(self, steps: int) -> list[str]:
        """Keys of at least HELD moves, which end where they began if they go to and fro."""
        if steps >= HELD:
            return ["ArrowRight"] * HELD
        whole = -(-HELD // (2 * steps)) * 2 * steps
        return [key for _, key in islice(to_and_fro([("", steps)]), whole)]

    def _press(self, keys: Sequence[str]) -> None:
        """Sends keys at their rate; after a late one the others are later, as on a keyboard."""
        due = time.perf_counter()
        for key in keys:
            time.sleep(max(0.0, due - time.perf_counter()))
            due = time.perf_counter() + 1 / RATE
            self.page.keyboard.down(key)
        for key in set(keys):
            self.page.keyboard.up(key)


def timed(notebook: Notebook) -> dict[str, list[float]]:
    """Milliseconds of every move by the mover's name; the first turn does not count."""
    pictures = [Picture(notebook, mover) for mover in (*STEPPERS, *EXPLORERS, PEER)]
    found: dict[str, list[float]] = defaultdict(list)
    for turn in range(TURNS + 1):
        for picture in pictures if turn % 2 else reversed(pictures):
            times = picture.moves(MOVES if turn else 2)
            found[picture.mover.name] += times if turn else []
    return found


def move_rows(found: dict[str, list[float]]) -> Iterator[Row]:
    """Median and p95 of every mover beside the peer's."""
    for mover in (*STEPPERS, *EXPLORERS):
        for what, share in (("p50", 0.5), ("p95", 0.95)):
            ours, peer = quantile(found[mover.name], share), quantile(found[PEER.name], share)
            note = f"{len(found[mover.name])} moves" if what == "p95" else ""
            yield row(f"{mover.name}_ms_{what}", ours, peer, "ms", note)


def held_rows(found: dict[str, dict[str, Any]]) -> Iterator[Row]:
    """What a held key lost, and how far the pictures were behind."""
    peer = found[PEER.name]
    for name, log in found.items():
        moved = lost(log["asked"], log["before"]) + log["sent"] - len(log["keys"])
        note = f"{log['sent']} keys in {(log['keys'][-1] - log['keys'][0]) / 1e3:.1f} s"
        if name == HOLD.name:
            frames = never_painted(log["asked"], log["painted"])
            yield row(f"held key {name}", frames + moved, None, "frames", note)
        elif name != PEER.name:
            yield row(f"held key {name}", moved + (not log["right"]), None, "keys", note)
            yield row(f"after a held key {name}", behind(log), behind(peer), "ms")


def behind(log: dict[str, Any]) -> float:
    """Milliseconds from the last key to the last picture; 0 if that was there before."""
    return max(0.0, log["changed"] - log["keys"][-1])


def row(what: str, ours: float, peer: float | None, unit: str, note: str = "") -> Row:
    """A row of this benchmark."""
    name, theirs = ("", None) if peer is None else (PEER.name, round(peer, 2))
    return Row("browser", what, 1, 0, round(ours, 2), theirs, name, unit, note)


def write(folder: Path) -> None:
    """A notebook with a cell for every mover."""
    cells = [IMPORTS, *(mover.source for mover in (*STEPPERS, *EXPLORERS, PEER, HOLD))]
    made = new_notebook(cells=[new_code_cell(cell.strip()) for cell in cells])
    made.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
    nbformat.write(made, folder / "moves.ipynb")


def measure(browser: Any, folder: Path) -> Iterator[Row]:
    """All rows, on one page."""
    for name in ("course", "home"):
        (folder / name).mkdir()
    write(folder / "course")
    server = Server(folder / "course", folder / "home")
    try:
        notebook = Notebook(browser, server, "moves.ipynb")
        notebook.page.evaluate(Path(__file__).with_name("moves.js").read_text())
        notebook.run(IMPORTS.strip())
        yield from move_rows(timed(notebook))
        pictures = [Picture(notebook, mover) for mover in (HOLD, *EXPLORERS, PEER)]
        yield from held_rows({picture.mover.name: picture.hold() for picture in pictures})
    finally:
        server.close()


def rows() -> Iterator[Row]:
    """Rows of steppers, of explorers, and of a held key; none without a browser."""
    try:
        with chromium() as browser, tempfile.TemporaryDirectory() as folder:
            yield from measure(browser, Path(folder))
    except Missing as missing:
        print(f"browser: not measured: {missing}", file=sys.stderr)
