"""Predictions against published runs: a row for each set, a dot for each run, how far off it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.lines import Line2D

from course_lib.plan.published.scores import SETS, Scored, of_set, summary
from course_lib.plot.player.figure import (
    as_picture,
    legend_below,
    new_figure,
    nothing_recorded,
    style,
)
from course_lib.plot.player.picture import Picture
from course_lib.plot.player.style import BLUE, INK, LINE, SOFT

MOST = 60.0  # percent: the end of the axis


def published_runs(scored: Sequence[Scored]) -> Picture:
    """Errors of the predicted TFLOP/s, in percent, set by set; the grey mark is the constant's.

    Args:
        scored: runs with predictions, as `plan.published.score` makes them.

    Raises:
        Refusal: there are none.
    """
    sets = {name: mine for name in SETS if (mine := of_set(scored, name))}
    if not sets:
        raise nothing_recorded("predictions beside published runs", "no run")
    with style():
        figure, axes = new_figure(8.4, 1.0 + 0.42 * len(sets))
        for row, mine in enumerate(sets.values()):
            found = summary(mine)
            axes.plot([-MOST, MOST], [row, row], color=LINE, linewidth=0.8)
            errors = [100 * one.error for one in mine]
            axes.scatter(errors, [row - 0.1] * len(errors), s=26, color=BLUE, alpha=0.7)
            middle = 100 * found.middle[1]
            axes.plot([-middle, middle], [row + 0.24] * 2, "|-", color=SOFT, markersize=7)
        axes.axvline(0, color=INK, linewidth=1)
        axes.set_yticks(range(len(sets)), [f"{n} ({len(m)})" for n, m in sets.items()])
        axes.tick_params(axis="y", length=0)
        axes.set_ylim(len(sets) - 0.4, -0.6)
        axes.set_xlim(-MOST, MOST)
        axes.set_xlabel("error of the predicted TFLOP/s in percent (positive: too fast)")
        axes.grid(axis="x")
        axes.spines["left"].set_visible(False)
        axes.set_title("Each dot is a published run")
        legend_below(figure, _handles())
        return as_picture(figure, "published runs", _words(sets))


def _handles() -> list[Line2D]:
    dot = Line2D([], [], color=BLUE, marker="o", linestyle="none", label="a run")
    words = "median error if one TFLOP/s is predicted for the whole set"
    return [dot, Line2D([], [], color=SOFT, marker="|", label=words)]


def _words(sets: Mapping[str, Sequence[Scored]]) -> str:
    """The chart in words."""
    out = []
    for name, mine in sets.items():
        found = summary(mine)
        out.append(
            f"{name}: {len(mine)} runs, median error {100 * found.middle[0]:.1f} %, largest "
            f"{100 * found.worst[0]:.1f} %; a constant's median {100 * found.middle[1]:.1f} %."
        )
    return " ".join(out)
