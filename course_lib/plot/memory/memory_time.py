"""Memory over time: what a rank held of each class at each moment, and when it held the most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter

from course_lib.plot.player.figure import (
    as_picture,
    legend_below,
    new_figure,
    nothing_recorded,
    style,
)
from course_lib.plot.player.picture import Picture
from course_lib.plot.player.style import INK, MEMORY_COLORS, PAPER, format_bytes, format_time
from course_lib.trace import Ledger, Timeline


@dataclass(frozen=True)
class Held:
    """What a rank held from a moment on.

    Attributes:
        at: seconds from the first sample.
        counts: bytes of each class.
    """

    at: float
    counts: dict[str, int]

    @property
    def total(self) -> int:
        """Bytes of all classes."""
        return sum(self.counts.values())


def memory_over_time(timeline: Timeline, rank: int = 0) -> Picture:
    """Bytes held by one rank over time, its memory classes stacked, its peak marked.

    Args:
        timeline: ledgers; that of `rank` has samples.
        rank: whose memory.

    Raises:
        Refusal: no memory was counted on that rank.
    """
    ledger = timeline.rank(rank)
    history = held_over_time(ledger)
    names = [n for n in MEMORY_COLORS if any(moment.counts.get(n) for moment in history)]
    if not names:
        raise nothing_recorded(f"memory over time of rank {rank}", "no memory counted")
    peak = max(history, key=lambda moment: moment.total)
    shown = thinned(history, history[-1].at / 800)
    with style():
        figure, axes = new_figure(8.4, 3.6)
        axes.stackplot(
            [moment.at * 1e3 for moment in shown],
            [[moment.counts.get(name, 0) for moment in shown] for name in names],
            colors=[MEMORY_COLORS[n] for n in names],
            step="post",
            edgecolor=PAPER,
            linewidth=0.4,
        )
        _mark(axes, peak, history[-1].at)
        _axes(axes, peak.total)
        legend_below(figure, [Patch(color=MEMORY_COLORS[n], label=n) for n in names])
        axes.set_title(f"Memory of rank {rank} by class, over time")
        alt = _words(rank, history, peak, names)
        return as_picture(figure, "memory over time", alt, measured=True)


def held_over_time(ledger: Ledger) -> list[Held]:
    """What was held from each sample on, and at the end; a class without samples did not change."""
    sampled = {name for _, name, _ in ledger.samples}
    now = {name: 0 if name in sampled else count for name, count in ledger.held.items()}
    begin = ledger.samples[0][0] if ledger.samples else 0.0
    history = []
    for at, name, count in ledger.samples:
        now[name] = count
        history.append(Held(at - begin, dict(now)))
    spans = [span.end - begin for span in ledger.spans]
    calls = [call.end - begin for call in ledger.events if call.end is not None]
    last = max([history[-1].at if history else 0.0, *spans, *calls])
    return [*history, Held(last, dict(now))]


def thinned(history: Sequence[Held], pixel: float) -> list[Held]:
    """At most two moments in `pixel` seconds: the one with the most held, and the last one."""
    groups: dict[int, list[Held]] = {}
    for moment in history:
        groups.setdefault(int(moment.at / pixel) if pixel > 0 else 0, []).append(moment)
    shown = []
    for group in groups.values():
        most = max(group, key=lambda moment: moment.total)
        shown += [most] if most is group[-1] else [most, group[-1]]
    return shown


def _mark(axes: Axes, peak: Held, last: float) -> None:
    """A dot at the peak, its bytes over it, on the side where there is room."""
    x, right = peak.at * 1e3, peak.at > 0.5 * last
    axes.plot([x], [peak.total], "o", color=INK, markersize=6)
    axes.annotate(
        f"peak {format_bytes(peak.total)} at {format_time(peak.at)}",
        (x, peak.total),
        xytext=(-6 if right else 6, 7),
        textcoords="offset points",
        fontweight="bold",
        fontsize=9.5,
        ha="right" if right else "left",
    )


def _axes(axes: Axes, most: int) -> None:
    """Bytes upwards, milliseconds to the right."""
    bytes_upwards(axes, most)
    axes.margins(x=0.01)
    axes.set_xlabel("ms from the first sample")


def bytes_upwards(axes: Axes, most: int) -> None:
    """An axis of bytes, with lines at multiples of a power of two."""
    step = 1 << (max(1, round(most / 5)) - 1).bit_length()
    axes.yaxis.set_ticks([step * k for k in range(int(most / step) + 1)])
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: format_bytes(value)))
    axes.set_ylim(0, most * 1.14)
    axes.grid(axis="y")


def _words(rank: int, history: Sequence[Held], peak: Held, names: Sequence[str]) -> str:
    """The chart in words."""
    parts = ", ".join(f"{name} {format_bytes(peak.counts.get(name, 0))}" for name in names)
    return (
        f"Memory of rank {rank} over {format_time(history[-1].at)}, stacked by class. "
        f"Peak {format_bytes(peak.total)} at {format_time(peak.at)}: {parts}. "
        f"At the end {format_bytes(history[-1].total)}."
    )
