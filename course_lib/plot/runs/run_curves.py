"""One picture for each number of a log, with the curves of all runs in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

from matplotlib.ticker import MaxNLocator

from course_lib.plot.player.figure import as_picture, new_figure, style
from course_lib.plot.player.picture import Picture
from course_lib.plot.player.style import CURVE_COLORS
from course_lib.trace import Refusal
from course_lib.trace.readers.steps import read_steps

Rows = Sequence[Mapping[str, Any]]
LOG = "log.jsonl"
# Numbers of a log with a picture, and what each is.
NUMBERS = {
    "loss": "loss, nats per token",
    "validation": "loss of the other text, nats per token",
    "norm": "norm of the gradient, before clipping",
    "rate": "learning rate",
    "tokens_per_second": "tokens per second",
    "mfu": "MFU: part of the peak that the model needs",
    "waited": "seconds waited for the slowest rank, a step",
    "expert_load": "tokens of the busiest expert over the mean",
    "parameters_mib": "parameters, MiB on the fullest rank",
    "gradients_mib": "gradients, MiB on the fullest rank",
    "optimizer_state_mib": "optimizer state, MiB on the fullest rank",
    "peak_mib": "peak of memory, MiB on the fullest rank",
}


def read_runs(folders: Sequence[Path]) -> dict[str, list[dict[str, Any]]]:
    """The rows of each run, by the name of its folder; of equal names, by the whole path.

    Raises:
        Refusal: a folder has no log with a step in it.
    """
    names = [folder.resolve().name for folder in folders]
    short = len(set(names)) == len(names)
    found = {}
    for folder, name in zip(folders, names, strict=True):
        rows = read_steps(folder / LOG)
        if not rows:
            why = "the training command writes one with --folder"
            raise Refusal(f"the curves of {folder}", f"no step in {folder / LOG}", why)
        found[name if short else str(folder)] = rows
    return found


def run_curves(runs: Mapping[str, Rows]) -> list[Picture]:
    """A picture for each number that a run has logged, in the order of NUMBERS."""
    pictures = []
    for name, words in NUMBERS.items():
        curves = {run: _points(rows, name) for run, rows in runs.items()}
        if any(curves.values()):
            pictures.append(_picture(name, words, curves))
    return pictures


def _points(rows: Rows, name: str) -> list[tuple[float, float]]:
    """Step and number, where there is a finite one."""
    numbers = [(row["step"], row.get(name)) for row in rows]
    return [(step, y) for step, y in numbers if isinstance(y, int | float) and isfinite(y)]


def _picture(name: str, words: str, curves: Mapping[str, list[tuple[float, float]]]) -> Picture:
    with style():
        figure, axes = new_figure(7.6, 2.9)
        said = []
        for place, (run, points) in enumerate(curves.items()):
            if not points:
                continue
            steps, values = zip(*points, strict=True)
            color = CURVE_COLORS[place % len(CURVE_COLORS)]
            axes.plot(steps, values, color=color, linewidth=1.6, label=run,
                      marker="o" if len(points) < 40 else "", markersize=3.5)  # fmt: skip
            said.append(f"{run}: {values[0]:.4g} at step {steps[0]} to {values[-1]:.4g} at "
                        f"step {steps[-1]}.")  # fmt: skip
        axes.set_xlabel("step")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid()
        axes.set_title(words)
        if len(curves) > 1:
            axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=9)
        return as_picture(figure, name, " ".join([f"{words}.", *said]), measured=True)
