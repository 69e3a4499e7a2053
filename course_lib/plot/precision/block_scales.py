"""Which numbers of a row its scales can hold: one range for all, or one for each block.

Paper: OCP "Microscaling Formats (MX) Specification v1.0" (2023), as a picture.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes

from course_lib.plot.player.figure import as_picture, new_figure, nothing_recorded, style
from course_lib.plot.player.picture import Picture
from course_lib.plot.player.style import BLUE, INK, LINE, SKY, VERMILLION

Way = tuple[Sequence[float], Sequence[float], Sequence[float]]  # low, high and what became of it


def block_scales(row: Sequence[float], ways: Mapping[str, Way]) -> Picture:
    """The magnitudes of a row in front of the ranges that its blocks have; what is lost is red.

    Args:
        row: numbers, none of them 0.
        ways: name of a way to scale to three numbers for each number of the row: the smallest and
            the largest magnitude that it can have with its block's scale, and what it becomes.

    Raises:
        Refusal: nothing to draw, or a way of another length.
    """
    if not ways or any(len(part) != len(row) for way in ways.values() for part in way):
        raise nothing_recorded("a picture of block scales", f"{len(row)} numbers")
    with style():
        figure, first = new_figure(7.8, 1.2 + 1.55 * len(ways))
        first.remove()
        panels = figure.subplots(len(ways), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
        for axes, (name, way) in zip(panels, ways.items(), strict=True):
            _panel(axes, name, row, way)
        panels[-1].set_xlabel("place in the row")
        panels[len(ways) // 2].set_ylabel("magnitude")
        figure.suptitle(
            "Shaded: what a number of the block can be. Crosses: what became zero.",
            x=0.01, ha="left", fontsize=10.5,
        )  # fmt: skip
        alt = "Magnitudes of a row, and the range of each block. " + " ".join(
            f"{name}: {_lost(row, way[2])} of {len(row)} numbers become zero."
            for name, way in ways.items()
        )
        return as_picture(figure, "block scales", alt)


def _panel(axes: Axes, name: str, row: Sequence[float], way: Way) -> None:
    low, high, became = way
    places = range(len(row))
    edges = [place - 0.5 for place in range(len(row) + 1)]
    axes.fill_between(edges, [*low, low[-1]], [*high, high[-1]], step="post", color=SKY,
                      alpha=0.28, linewidth=0)  # fmt: skip
    axes.step(edges, [*high, high[-1]], where="post", color=BLUE, linewidth=1.0)
    axes.step(edges, [*low, low[-1]], where="post", color=BLUE, linewidth=1.0)
    kept = [place for place in places if became[place] != 0]
    lost = [place for place in places if became[place] == 0]
    axes.plot(kept, [abs(row[p]) for p in kept], "o", color=INK, markersize=3)
    axes.plot(lost, [abs(row[p]) for p in lost], "x", color=VERMILLION, markersize=5,
              markeredgewidth=1.6)  # fmt: skip
    axes.set_yscale("log", base=2)
    axes.set_xlim(edges[0], edges[-1])
    axes.grid(axis="y", color=LINE)
    axes.set_title(f"{name}: {_lost(row, became)} of {len(row)} numbers become zero", fontsize=9.5)


def _lost(row: Sequence[float], became: Sequence[float]) -> int:
    return sum(after == 0 != before for before, after in zip(row, became, strict=True))
