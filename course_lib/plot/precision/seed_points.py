"""What a change does to a loss, seed by seed: a claim of training needs more than one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from course_lib.plot.player.figure import as_picture, new_figure, nothing_recorded, style
from course_lib.plot.player.picture import Picture
from course_lib.plot.player.style import BLUE, INK, LINE, VERMILLION


def seed_points(found: Mapping[str, Sequence[float]], label: str) -> Picture:
    """A row of points for each run, one a seed, with their mean as a bar.

    Args:
        found: name of a way to one number for each seed.
        label: what the numbers are.

    Raises:
        Refusal: there is nothing to draw.
    """
    if not found or not all(found.values()):
        raise nothing_recorded("points of seeds", f"{len(found)} ways")
    with style():
        figure, axes = new_figure(7.6, 1.0 + 0.42 * len(found))
        axes.axvline(0.0, color=LINE, linewidth=4)
        for row, values in enumerate(found.values()):
            axes.plot(values, [row] * len(values), "o", color=BLUE, markeredgecolor=INK,
                      markeredgewidth=0.5, alpha=0.85)  # fmt: skip
            mean = fmean(values)
            axes.plot([mean, mean], [row - 0.32, row + 0.32], color=VERMILLION, linewidth=3)
        axes.set_yticks(range(len(found)), list(found))
        axes.invert_yaxis()
        axes.set_xlabel(label)
        axes.grid(axis="x")
        axes.set_title("Each point is a seed, each bar the mean")
        words = " ".join(
            f"{name}: mean {fmean(values):.2g}, from {min(values):.2g} to {max(values):.2g}."
            for name, values in found.items()
        )
        return as_picture(figure, "points of seeds", f"{label}. {words}", measured=True)
