"""How fast a product can be: as fast as its operands come from memory, or as the units multiply.

Paper: Williams et al., "Roofline: An Insightful Visual Performance Model" (2009).
"""

from __future__ import annotations

from collections.abc import Mapping

from course_lib.plot.player.figure import as_picture, new_figure, nothing_recorded, style
from course_lib.plot.player.picture import Picture
from course_lib.plot.player.style import CURVE_COLORS, GREY, INK

LOW, HIGH = 1.0, 2.0**14  # operations per byte that are shown


def roofline(
    peaks: Mapping[str, float],
    bandwidth: float,
    works: Mapping[str, tuple[str, float]],
    title: str,
) -> Picture:
    """A roof for each precision, and pieces of work as points on it.

    Args:
        peaks: precision to FLOP/s.
        bandwidth: of the memory, bytes/s.
        works: name to its precision and its operations for each byte of memory traffic.
        title: over the chart.

    Raises:
        Refusal: no precision, or work in one without a peak.
    """
    if not peaks or not all(precision in peaks for precision, _ in works.values()):
        raise nothing_recorded("a roofline", f"peaks of {', '.join(peaks) or 'nothing'}")
    with style():
        figure, axes = new_figure(7.6, 4.2)
        highest = max(peaks.values())
        axes.plot([LOW, highest / bandwidth], [LOW * bandwidth / 1e12, highest / 1e12],
                  color=GREY, linewidth=2.2, label="memory")  # fmt: skip
        for color, (name, peak) in zip(CURVE_COLORS, peaks.items(), strict=False):
            axes.plot([peak / bandwidth, HIGH], [peak / 1e12, peak / 1e12],
                      color=color, linewidth=2.2, label=name)  # fmt: skip
            for work, (precision, intensity) in works.items():
                if precision == name:
                    reached = min(peak, bandwidth * intensity) / 1e12
                    axes.plot([intensity], [reached], "o", color=color, markeredgecolor=INK,
                              markersize=8)  # fmt: skip
                    slope = bandwidth * intensity < peak  # its word is left of the line
                    axes.annotate(work, (intensity, reached), textcoords="offset points",
                                  xytext=(-8, 3) if slope else (7, -14), fontsize=8.5,
                                  ha="right" if slope else "left")  # fmt: skip
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xlabel("operations per byte that comes from memory or goes there")
        axes.set_ylabel("TFLOP/s")
        axes.grid()
        axes.legend(loc="lower right", fontsize=9)
        axes.set_title(title)
        return as_picture(figure, "roofline", _words(peaks, bandwidth, works, title))


def _words(
    peaks: Mapping[str, float],
    bandwidth: float,
    works: Mapping[str, tuple[str, float]],
    title: str,
) -> str:
    roofs = " ".join(
        f"{name}: {peak / 1e12:.0f} TFLOP/s from {peak / bandwidth:.0f} operations per byte on."
        for name, peak in peaks.items()
    )
    points = " ".join(
        f"{work}: {intensity:.3g} operations per byte, at most "
        f"{min(peaks[name], bandwidth * intensity) / 1e12:.0f} TFLOP/s."
        for work, (name, intensity) in works.items()
    )
    return f"{title}. Below the corner memory is the limit. {roofs} {points}"
