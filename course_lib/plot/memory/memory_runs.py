"""Activation memory over time of several recorded steps, on the same axes: what forgetting saves.

Paper: Chen et al., "Training Deep Nets with Sublinear Memory Cost" (2016), figure 6, over time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from matplotlib.axes import Axes

from course_lib.plot.memory.memory_time import Held, bytes_upwards, held_over_time, thinned
from course_lib.plot.player.figure import as_picture, new_figure, nothing_recorded, style
from course_lib.plot.player.picture import Picture
from course_lib.plot.player.style import BLUE, GREEN, ORANGE, PURPLE, VERMILLION, format_bytes
from course_lib.trace import Ledger, Timeline

CLASS = "activations"
COLORS = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE)
APART = 0.13  # of the axis: how far labels are from each other at least


@dataclass(frozen=True)
class Curve:
    """What one run held.

    Attributes:
        name: of the run.
        history: from the first activation that is held to the last one that is freed.
    """

    name: str
    history: list[Held]

    @cached_property
    def peak(self) -> Held:
        """When it held the most, for the first time."""
        return max(self.history, key=lambda moment: moment.total)

    def progress(self, moment: Held) -> float:
        """How much of the run is over at this moment, in percent."""
        return 100 * moment.at / self.history[-1].at


def memory_compared(runs: Mapping[str, Timeline | Ledger], rank: int = 0) -> Picture:
    """Activations that one rank held in several runs, each peak with its bytes.

    A curve begins with the first activation that is held and ends when the last one is freed. Each
    is drawn over its own length: who counts memory slows runs by different amounts, so that their
    times say nothing about each other.

    Args:
        runs: name of a run to its records: one to five, each with samples of activations.
        rank: whose memory, in those that are timelines.

    Raises:
        Refusal: a run has no such samples, or there are too many runs.
    """
    if not 1 <= len(runs) <= len(COLORS):
        raise nothing_recorded("activations of several runs", f"{len(runs)} runs, not 1 to 5")
    curves = [
        _curve(name, run.rank(rank) if isinstance(run, Timeline) else run)
        for name, run in runs.items()
    ]
    with style():
        figure, axes = new_figure(8.4, 3.6)
        for curve, color in zip(curves, COLORS, strict=False):
            _draw(axes, curve, color)
        bytes_upwards(axes, max(curve.peak.total for curve in curves))
        _label_peaks(axes, curves)
        axes.set_xlim(0, 100)
        axes.set_xlabel("progress of each step, in %")
        axes.set_title(f"Activations held by rank {rank} in one step")
        alt = _words(rank, curves)
        return as_picture(figure, "activations of several runs", alt, measured=True)


def _curve(name: str, ledger: Ledger) -> Curve:
    """The moments at which the bytes of activations changed, the first of them at time 0."""
    every = [Held(m.at, {CLASS: m.counts.get(CLASS, 0)}) for m in held_over_time(ledger)]
    before = Held(0.0, {CLASS: 0})
    changed = [now for last, now in pairwise([before, *every]) if now.total != last.total]
    if not changed or changed[-1].at == changed[0].at:
        found = f"{len(changed)} changes of activation memory in {name!r}"
        raise nothing_recorded("activations over time", found)
    begin = changed[0].at
    return Curve(name, [Held(m.at - begin, m.counts) for m in changed])


def _draw(axes: Axes, curve: Curve, color: str) -> None:
    """A curve of steps, lightly filled; the last moment is where it ends."""
    shown = thinned(curve.history, curve.history[-1].at / 400)
    times = [curve.progress(moment) for moment in shown]
    counts = [moment.total for moment in shown]
    axes.stairs(
        counts[:-1], times, fill=True, facecolor=f"{color}24", edgecolor=color, linewidth=1.8
    )


def _label_peaks(axes: Axes, curves: list[Curve]) -> None:
    """A dot at each peak, and a line to its name and bytes at the right; names keep apart."""
    top = axes.get_ylim()[1]
    rising = sorted(curves, key=lambda curve: curve.peak.total)
    places = apart([curve.peak.total / top for curve in rising])
    for curve, place in zip(rising, places, strict=True):
        count, color = curve.peak.total, COLORS[curves.index(curve)]
        x = curve.progress(curve.peak)
        axes.plot([x], [count], "o", color=color, markersize=6)
        axes.plot([x, 100], [count, count], color=color, linewidth=1, linestyle=(0, (4, 3)))
        axes.annotate(
            f"{curve.name}\npeak {format_bytes(count)}",
            (1, count / top),
            (1.045, place),
            xycoords="axes fraction",
            va="center",
            fontsize=9.5,
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": color, "linewidth": 1},
        )


def apart(heights: list[float]) -> list[float]:
    """Rising heights, moved up until they are apart, and down again where that is too high."""
    free, places = -1.0, []
    for height in heights:
        places.append(max(height, free))
        free = places[-1] + APART
    limit = 0.95
    for number in reversed(range(len(places))):
        places[number] = min(places[number], limit)
        limit = places[number] - APART
    return places


def _words(rank: int, curves: list[Curve]) -> str:
    """The chart in words, each run compared with the first."""
    out = [
        f"Activations held by rank {rank} in one step, from the first that is held to the last "
        "that is freed, each run over its own length."
    ]
    first = curves[0]
    for curve in curves:
        progress = curve.progress(curve.peak)
        words = f"{curve.name}: peak {format_bytes(curve.peak.total)} after {progress:.0f} %"
        if curve is not first:
            share = 100 * curve.peak.total / first.peak.total
            words += f" ({share:.0f} % of the memory of {first.name})"
        out.append(words + ".")
    return " ".join(out)
