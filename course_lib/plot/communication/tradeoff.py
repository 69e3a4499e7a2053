"""The loss that a way to train reaches, over the bytes that it sends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from course_lib.plot.player.figure import as_picture, new_figure, nothing_recorded, style
from course_lib.plot.player.picture import Picture
from course_lib.plot.player.style import CURVE_COLORS, INK, LINE, format_bytes

MARKERS = "os^DvPX*"  # one for each way: colors come again


def bytes_and_losses(found: Mapping[str, tuple[float, Sequence[float]]], reference: str) -> Picture:
    """A point for each seed, a bar for their range; bytes grow to the right, by factors.

    Args:
        found: name of a way to the bytes that a rank sends, and its seeds' losses.
        reference: the way whose range is drawn across the chart.

    Raises:
        Refusal: there are no losses, or the reference is not among the ways.
    """
    if reference not in found or not all(count and losses for count, losses in found.values()):
        raise nothing_recorded("losses over bytes", f"{list(found)}, reference {reference!r}")
    with style():
        figure, axes = new_figure(7.8, 4.2)
        low, high = min(found[reference][1]), max(found[reference][1])
        axes.axhspan(low, high, color=LINE, alpha=0.5, linewidth=0)
        for number, (name, (count, losses)) in enumerate(found.items()):
            color = CURVE_COLORS[number % len(CURVE_COLORS)]
            marker = MARKERS[number % len(MARKERS)]
            axes.plot([count] * 2, [min(losses), max(losses)], color=color, linewidth=1.2)
            axes.plot([count] * len(losses), losses, marker, color=color, markersize=4)
            axes.plot(
                [count], [fmean(losses)], marker, color=color, markersize=9,
                markeredgecolor=INK, markeredgewidth=0.6, label=name,
            )  # fmt: skip
        axes.set_xscale("log")
        ticks = sorted({count for count, _ in found.values()})
        wide = [tick for n, tick in enumerate(ticks) if n == 0 or tick > 1.35 * ticks[n - 1]]
        axes.set_xticks(wide, [format_bytes(int(tick)) for tick in wide], rotation=30)
        axes.minorticks_off()
        axes.set_xlabel("sent by a rank in the whole run (logarithmic)")
        axes.set_ylabel("loss at the end")
        axes.grid()
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=9)
        axes.set_title(
            f"Loss against bytes: all seeds, and their mean (band: range of {reference})"
        )
        words = "; ".join(
            f"{name}: {format_bytes(int(count))}, loss {fmean(losses):.2f} "
            f"({min(losses):.2f} to {max(losses):.2f})"
            for name, (count, losses) in found.items()
        )
        return as_picture(figure, "losses over bytes", f"Loss and bytes. {words}.", measured=True)
