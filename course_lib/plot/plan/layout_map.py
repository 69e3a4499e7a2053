"""Layouts by memory and time: what fits, what is fast, and where a simple sum is from a better one.

Source: none; a planner's whole question on one page.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from matplotlib.lines import Line2D

from course_lib.plot.player.figure import (
    as_picture,
    legend_below,
    new_figure,
    nothing_recorded,
    style,
)
from course_lib.plot.player.picture import Picture
from course_lib.plot.player.style import BLUE, INK, LINE, SOFT, VERMILLION

GB = 1e9


class Place(NamedTuple):
    """Where a layout is on the map.

    Attributes:
        memory: bytes on the fullest GPU.
        seconds: of a step.
    """

    memory: float
    seconds: float


def layout_map(
    ways: Mapping[str, Place], room: float, sums: Mapping[str, Place] | None = None
) -> Picture:
    """A dot for each layout, left of the line if it fits; the fastest that fits has its name.

    Args:
        ways: name to place; memory has a logarithmic axis.
        room: bytes of a GPU that a layout may use.
        sums: other predictions of the same layouts, each joined to its dot.

    Raises:
        Refusal: there is no layout.
    """
    if not ways:
        raise nothing_recorded("layouts by memory and time", "no layout")
    fit = {name: one for name, one in ways.items() if one.memory <= room}
    best = min(fit, key=lambda name: fit[name].seconds, default=None)
    with style():
        figure, axes = new_figure(8.4, 4.6)
        for name, one in (sums or {}).items():
            ends = (one, ways[name])
            axes.plot([e.memory / GB for e in ends], [e.seconds for e in ends],
                      color=LINE, linewidth=1, zorder=1)  # fmt: skip
            axes.plot(one.memory / GB, one.seconds, "o", color=SOFT, fillstyle="none", markersize=5)
        for name, one in ways.items():
            color = BLUE if name in fit else VERMILLION
            axes.plot(one.memory / GB, one.seconds, "o" if name in fit else "x", color=color)
        axes.axvline(room / GB, color=INK, linewidth=1)
        if best is not None:
            axes.annotate(best, (fit[best].memory / GB, fit[best].seconds), (0.04, 0.06),
                          textcoords="axes fraction", fontweight="bold",
                          arrowprops={"arrowstyle": "->", "color": SOFT})  # fmt: skip
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.set_xlabel("GB on the fullest GPU; right of the line it does not fit")
        axes.set_ylabel("seconds per step")
        axes.set_title("Each pair of marks is a layout" if sums else "Each mark is a layout")
        legend_below(figure, _handles(bool(sums)))
        words = f"{len(ways)} layouts by memory and time; {len(fit)} fit into {room / GB:.1f} GB."
        if best is not None:
            one = fit[best]
            words += f" The fastest of them is {best}: {one.memory / GB:.1f} GB, "
            words += f"{one.seconds:.1f} s."
        return as_picture(figure, "layouts by memory and time", words)


def _handles(joined: bool) -> list[Line2D]:
    dots = [
        Line2D([], [], color=BLUE, marker="o", linestyle="none", label="fits"),
        Line2D([], [], color=VERMILLION, marker="x", linestyle="none", label="does not fit"),
    ]
    hollow = Line2D([], [], color=SOFT, marker="o", linestyle="none", fillstyle="none",
                    label="by the simple formulas")  # fmt: skip
    return [*dots, hollow] if joined else dots
