"""Speed-up over the number of ranks: what was measured, and what a model says."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.ticker import MaxNLocator

from course_lib.plot.player.figure import as_picture, new_figure, nothing_recorded, style
from course_lib.plot.player.picture import Picture
from course_lib.plot.player.style import CURVE_COLORS, INK, LINE


def scaling_chart(
    measured: Mapping[str, Mapping[int, float]],
    model: Mapping[str, Mapping[int, float]],
    title: str,
) -> Picture:
    """How many times as fast N ranks are as one: points measured, lines of a model.

    Args:
        measured: name of a network to (ranks to speed-up).
        model: the same, for the lines; as many ranks as it should show.
        title: over the chart.

    Raises:
        Refusal: there is nothing to draw.
    """
    lines = [model.get(name) for name in measured]
    if not measured or not all(measured.values()) or not all(lines):
        raise nothing_recorded(
            "a chart of scaling", f"{len(measured)} networks, {len(model)} lines"
        )
    most = max(max(line) for line in model.values())
    with style():
        figure, axes = new_figure(7.6, 4.0)
        axes.plot([1, most], [1, most], color=LINE, linewidth=5, label="nothing lost")
        for color, (name, points) in zip(CURVE_COLORS, measured.items(), strict=False):
            line = model[name]
            axes.plot(list(line), list(line.values()), color=color, linewidth=1.8, label=name)
            axes.plot(
                list(points), list(points.values()), "o",
                color=color, markeredgecolor=INK, markeredgewidth=0.5,
            )  # fmt: skip
        axes.set_xlabel("ranks")
        axes.set_ylabel("times as fast as one rank")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid()
        axes.legend(loc="upper left", fontsize=9)
        axes.set_title(f"{title}: measured (points) and the model (lines)")
        alt = " ".join(_words(name, points, model[name]) for name, points in measured.items())
        return as_picture(figure, "scaling", f"{title}. {alt}", measured=True)


def _words(name: str, points: Mapping[int, float], line: Mapping[int, float]) -> str:
    found = ", ".join(f"{speed:.1f} times on {ranks}" for ranks, speed in points.items())
    return f"{name}: {found}; the model ends at {line[max(line)]:.1f} times on {max(line)}."
