"""A matrix, the two thin ones that travel for it, their product, and what is left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from course_lib.plot.player.figure import as_picture, new_figure, nothing_recorded, style
from course_lib.plot.player.picture import Picture
from course_lib.plot.player.style import BLUE, PAPER, VERMILLION

Matrix = Sequence[Sequence[float]]
NARROWEST = 8  # columns that a name needs, where the matrix has fewer


def low_rank(matrices: Mapping[str, Matrix], title: str) -> Picture:
    """Matrices beside each other, at one scale of lengths and one of colours for each.

    Args:
        matrices: name to numbers, by row.
        title: over the picture.

    Raises:
        Refusal: there is none, or one without a number.
    """
    shapes = {name: (len(rows), len(rows[0]) if rows else 0) for name, rows in matrices.items()}
    if not shapes or not all(rows * columns for rows, columns in shapes.values()):
        raise nothing_recorded("a picture of matrices", f"{shapes}")
    colors = LinearSegmentedColormap.from_list("course", [BLUE, PAPER, VERMILLION])
    with style():
        figure, axes = new_figure(8.6, 3.4)
        axes.remove()
        widths = [max(columns, NARROWEST) + 3 for _, columns in shapes.values()]
        _draw(figure, matrices, shapes, widths, colors)
        figure.suptitle(title, x=0.01, ha="left", fontsize=11.5, fontweight="bold")
        sizes = ", ".join(f"{name} {r} × {c}" for name, (r, c) in shapes.items())
        return as_picture(figure, "thin matrices", f"{title}: {sizes}.", measured=True)


def _draw(
    figure: Figure,
    matrices: Mapping[str, Matrix],
    shapes: Mapping[str, tuple[int, int]],
    widths: Sequence[int],
    colors: Any,
) -> None:
    tallest = max(rows for rows, _ in shapes.values())
    places = figure.subplots(1, len(matrices), width_ratios=widths, squeeze=False)[0]
    for axes, (name, rows) in zip(places, matrices.items(), strict=True):
        most = max(abs(value) for row in rows for value in row) or 1.0
        axes.pcolormesh(
            [list(row) for row in rows][::-1], cmap=colors, vmin=-most, vmax=most, linewidth=0
        )
        count, columns = shapes[name]
        axes.set_xlim(0, max(columns, NARROWEST) + 3)
        axes.set_ylim(count - tallest, count)
        axes.set_aspect("equal")
        axes.set_axis_off()
        axes.set_title(f"{name}\n{count} × {columns}", fontsize=9, fontweight="normal")
