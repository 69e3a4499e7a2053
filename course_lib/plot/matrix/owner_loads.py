"""How much each owner has to compute: a bar for each, a piece for each matrix, a line at the mean.

The busiest owner, for whom the others wait, has its own colour and its load in words.

Source: Ahn et al., "Dion: Distributed Orthonormalized Updates" (2025), whose owners get an equal
number of matrices each; the picture shows what that means in operations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from course_lib.plot.player.figure import as_picture, new_figure, nothing_recorded, style
from course_lib.plot.player.picture import Picture
from course_lib.plot.player.style import BLUE, INK, PAPER, VERMILLION

Loads = Sequence[Sequence[float]]  # for each owner, the operations of each of its matrices


def owner_loads(ways: Mapping[str, Loads]) -> Picture:
    """Loads of owners, in operations, for several ways to choose them.

    The step ends when the longest bar does; the line is where all would end if they were equal.

    Args:
        ways: name of a way to its owners' matrices, in operations; the same number of owners each.

    Raises:
        Refusal: there is nothing to draw.
    """
    if not ways or not all(owners and any(map(sum, owners)) for owners in ways.values()):
        raise nothing_recorded("the loads of owners", f"{len(ways)} ways")
    count = max(len(owners) for owners in ways.values())
    unit, name = _unit(max(sum(costs) for owners in ways.values() for costs in owners))
    with style():
        figure, axes = new_figure(7.6, 0.9 + len(ways) * (0.22 * count + 0.2))
        tall = 0.86 / count
        for place, owners in enumerate(ways.values()):
            most = max(map(sum, owners))
            for index, costs in enumerate(owners):
                y, begin = place - 0.43 + (index + 0.5) * tall, 0.0
                last = sum(costs) == most
                for cost in sorted(costs, reverse=True):
                    axes.barh(y, cost / unit, tall * 0.85, begin / unit, edgecolor=PAPER,
                              color=VERMILLION if last else BLUE, linewidth=0.8)  # fmt: skip
                    begin += cost
                if last:
                    axes.text(begin / unit, y, f"  {busiest(owners):.2f} × the mean",
                              va="center", fontsize=9)  # fmt: skip
            mean = sum(map(sum, owners)) / len(owners) / unit
            axes.plot([mean, mean], [place - 0.45, place + 0.45], color=INK, linewidth=1.5)
        axes.set_yticks(range(len(ways)), [f"{way},\n{count} owners" for way in ways])
        axes.margins(x=0.16)  # room for the words
        axes.invert_yaxis()
        axes.set_xlabel(f"{name} of each owner, a piece for each matrix (line: the mean)")
        axes.set_title("The step waits for the busiest owner")
        alt = "Operations of each owner. " + " ".join(_words(*way) for way in ways.items())
        return as_picture(figure, "loads of owners", alt)


def busiest(owners: Loads) -> float:
    """The load of the busiest owner, in mean loads."""
    loads = [sum(costs) for costs in owners]
    return max(loads) * len(loads) / sum(loads)


def _unit(most: float) -> tuple[float, str]:
    for size, name in ((1e12, "TFLOP"), (1e9, "GFLOP"), (1e6, "MFLOP")):
        if most >= size:
            return size, name
    return 1.0, "FLOP"


def _words(name: str, owners: Loads) -> str:
    return f"{name}: the busiest of {len(owners)} owners has {busiest(owners):.2f} times the mean."
