"""How uneven experts are over the steps of training: the busiest one's load, for several runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from course_lib.plot.player.figure import as_picture, new_figure, nothing_recorded, style
from course_lib.plot.player.picture import Picture
from course_lib.plot.player.style import CURVE_COLORS, LINE


def load_curves(loads: Mapping[str, Sequence[Sequence[float]]]) -> Picture:
    """The busiest expert's load over steps: lines are means over seeds, bands hold all seeds.

    Args:
        loads: name of a way to balance to its seeds; of each seed, each step's load / mean load.

    Raises:
        Refusal: there is nothing to draw.
    """
    if not loads or not all(seeds and all(seeds) for seeds in loads.values()):
        raise nothing_recorded("a chart of loads", f"{len(loads)} ways")
    with style():
        figure, axes = new_figure(7.6, 3.8)
        axes.axhline(1.0, color=LINE, linewidth=4, label="even")
        for color, (name, seeds) in zip(CURVE_COLORS, loads.items(), strict=False):
            by_step = list(zip(*seeds, strict=True))
            steps = range(1, 1 + len(by_step))
            low, high = [min(step) for step in by_step], [max(step) for step in by_step]
            axes.fill_between(steps, low, high, color=color, alpha=0.18, linewidth=0)
            axes.plot(steps, [fmean(s) for s in by_step], color=color, linewidth=2, label=name)
        axes.set_xlabel("step")
        axes.set_ylabel("load of the busiest expert / mean load")
        axes.set_ylim(bottom=0)
        axes.grid()
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=9)
        axes.set_title("The busiest expert (line: mean of the seeds, band: all of them)")
        alt = "Load of the busiest expert, relative to the mean. " + " ".join(
            _words(name, seeds) for name, seeds in loads.items()
        )
        return as_picture(figure, "loads of experts", alt, measured=True)


def _words(name: str, seeds: Sequence[Sequence[float]]) -> str:
    first, last = (fmean(seed[at] for seed in seeds) for at in (0, -1))
    return f"{name}: from {first:.1f} in the first step to {last:.1f} in the last."
