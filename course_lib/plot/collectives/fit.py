"""Time against message size: the measured points, and the line of the α–β model if it has one.

Paper: Hockney, "The communication challenge for MPP" (1994): a message costs α + β·S.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.ticker import FuncFormatter, LogLocator

from course_lib.plot.player.figure import as_picture, new_figure, nothing_recorded, style
from course_lib.plot.player.picture import Picture
from course_lib.plot.player.style import INK, RANK_COLORS, format_bytes, format_time


def alpha_beta_chart(
    sizes: Sequence[int],
    times: Mapping[str, Sequence[float]],
    fits: Mapping[str, tuple[float, float]] | None = None,
) -> Picture:
    """Time against message size on two logarithmic axes: points measured, lines of the model.

    Args:
        sizes: S, bytes of each measured message.
        times: name of a series to its seconds, one a size.
        fits: name of a series to (α, β) of its model α + β·S, in seconds and seconds per byte. The
            points of a series without one are joined.

    Raises:
        Refusal: there is nothing to draw.
    """
    if not sizes or not times:
        raise nothing_recorded("times against sizes", f"{len(sizes)} sizes, {len(times)} series")
    with style():
        figure, axes = new_figure(7.6, 4.2)
        for color, (name, seconds) in zip(RANK_COLORS, times.items(), strict=False):
            fit = (fits or {}).get(name)
            label = f"{name}: {_fit_words(fit)}" if fit else name
            axes.loglog(
                sizes,
                seconds,
                "o" if fit else "o-",
                color=color,
                markersize=6,
                label=label,
                markeredgecolor=INK,
                markeredgewidth=0.5,
            )
            if fit:
                axes.loglog(*_model(sizes, fit), color=color, linewidth=1.8)
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_bytes(value)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: format_time(value)))
        axes.minorticks_off()
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))  # powers of ten alone may be one
        axes.grid()
        axes.set_xlabel("message size S")
        axes.legend(loc="upper left", fontsize=9)
        lines = " and α + β·S (lines)" if fits else ""
        axes.set_title(f"Time against size: measured (points){lines}")
        alt = _fit_alt(sizes, times, fits or {})
        return as_picture(figure, "time against size", alt, measured=True)


def _model(sizes: Sequence[int], fit: tuple[float, float]) -> tuple[list[float], list[float]]:
    """The model's line as points, evenly spaced on a logarithmic axis."""
    low, high = min(sizes), max(sizes)
    along = [low * (high / low) ** (step / 60) for step in range(61)]
    return along, [fit[0] + fit[1] * size for size in along]


def _fit_words(fit: tuple[float, float]) -> str:
    """`α = 20 µs, 1/β = 3.2 GB/s`: bandwidths are quoted in powers of ten everywhere."""
    return f"α = {format_time(fit[0])}, 1/β = {1e-9 / fit[1]:.3g} GB/s"


def _fit_alt(
    sizes: Sequence[int],
    times: Mapping[str, Sequence[float]],
    fits: Mapping[str, tuple[float, float]],
) -> str:
    out = [
        f"Time against message size from {format_bytes(min(sizes))} to "
        f"{format_bytes(max(sizes))}, both axes logarithmic."
    ]
    for name, seconds in times.items():
        model = f"; the line is {_fit_words(fits[name])}" if name in fits else ""
        out.append(f"{name}: from {format_time(seconds[0])} to {format_time(seconds[-1])}{model}.")
    return " ".join(out)
