"""Workers that train alone and meet: their paths in the plane of two weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from course_lib.plot.player.figure import as_picture, new_figure, nothing_recorded, style
from course_lib.plot.player.picture import Picture
from course_lib.plot.player.style import INK, SOFT, rank_color

Point = Sequence[float]
MANY = 4  # meetings that are numbered: later ones lie close together


def worker_paths(
    rounds: Sequence[Sequence[Sequence[Point]]],
    met: Sequence[Point],
    minima: Mapping[str, Point],
    title: str,
) -> Picture:
    """A line for each worker and round, and the points where all of them met.

    Args:
        rounds: by round and worker, the two weights before the first step and after each.
        met: where they met: the start, and the end of each round.
        minima: name to point, of what each worker and all of them together are after.
        title: over the chart.

    Raises:
        Refusal: there is no round, or not one more point where they met.
    """
    if not rounds or len(met) != len(rounds) + 1:
        raise nothing_recorded("paths of workers", f"{len(rounds)} rounds, {len(met)} points")
    with style():
        figure, axes = new_figure(7.6, 4.4)
        for number, workers in enumerate(rounds):
            for rank, way in enumerate(workers):
                axes.plot(
                    *zip(*way, strict=True),
                    color=rank_color(rank),
                    linewidth=1.4,
                    marker=".",
                    markersize=4,
                    label=f"rank {rank} between meetings" if number == 0 else None,
                )
        axes.plot(
            *zip(*met, strict=True), "o--",
            color=INK, linewidth=1.0, markersize=7, label="mean of the ranks",
        )  # fmt: skip
        for number, (x, y) in enumerate(met[:MANY]):
            axes.annotate(
                str(number), (x, y), xytext=(6, -13), textcoords="offset points", color=SOFT
            )
        for marker, (name, (x, y)) in zip("x+*", minima.items(), strict=False):
            axes.plot([x], [y], marker, color=INK, markersize=10, linestyle="", label=name)
        axes.set_xlabel("first weight")
        axes.set_ylabel("second weight")
        axes.grid()
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=9)
        axes.set_title(title)
        ends = " to ".join(f"({x:.2f}, {y:.2f})" for x, y in (met[0], met[-1]))
        places = "; ".join(f"{name} at ({x:.2f}, {y:.2f})" for name, (x, y) in minima.items())
        alt = (
            f"{title}. {len(rounds[0])} ranks train alone for {len(rounds[0][0]) - 1} steps and "
            f"meet, {len(rounds)} times: from {ends}. {places}."
        )
        return as_picture(figure, "paths of workers", alt, measured=True)
