"""Loss curves that must lie on each other: a strategy that is right trains as one process does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from course_lib.plot.player.figure import as_picture, new_figure, nothing_recorded, style
from course_lib.plot.player.picture import Picture
from course_lib.plot.player.style import CURVE_COLORS, LINE
from course_lib.trace import Refusal

DASH = 2.0  # in widths of the line


def loss_curves(curves: Mapping[str, Sequence[float]], reference: str | None = None) -> Picture:
    """Losses over steps: the reference wide and light, all others thin and dashed on top of it.

    Curves that coincide still are all seen: the dashes of one lie in the gaps of the others.

    Args:
        curves: name of a run to its losses, one a step; the others may stop before the reference.
        reference: the run that the others are compared with; the first one by default.

    Raises:
        Refusal: there is nothing to compare, no such run, or one goes on beyond the reference.
    """
    name = _checked(curves, reference)
    far = {other: _difference(curves[name], curves[other]) for other in curves if other != name}
    with style():
        figure, axes = new_figure(7.6, 3.6)
        steps = range(1, 1 + len(curves[name]))
        axes.plot(
            steps,
            curves[name],
            color=LINE,
            linewidth=7,
            label=f"{name} (reference)",
            solid_capstyle="round",
        )
        for place, other in enumerate(far):
            label = f"{other} (off by {far[other]:.2g} at most)"
            _thin(axes, curves[other], place, len(far), label)
        axes.set_xlabel("step")
        axes.set_ylabel("loss")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid()
        axes.legend(
            loc="center left",
            bbox_to_anchor=(1.01, 0.5),
            fontsize=9,
            handlelength=3.2,
        )
        axes.set_title("Loss of each run")
        return as_picture(figure, "loss curves", _words(curves, name, far), measured=True)


def _checked(curves: Mapping[str, Sequence[float]], reference: str | None) -> str:
    """The name of the reference, if all curves can be compared with it."""
    if len(curves) < 2 or not all(len(losses) for losses in curves.values()):
        raise nothing_recorded("loss curves on top of a reference", f"{len(curves)} curves")
    name = next(iter(curves)) if reference is None else reference
    lengths = {run: len(losses) for run, losses in curves.items()}
    if name not in curves or max(lengths.values()) > lengths[name]:
        raise Refusal(
            f"compare losses with those of {name!r}",
            f"runs and their steps: {lengths}",
            "the reference is one of the runs, and no other goes on beyond it",
        )
    return name


def _thin(axes: Axes, losses: Sequence[float], place: int, count: int, label: str) -> None:
    """One curve, dashed; each of `count` curves has its own part of a dash's period."""
    gap = DASH * max(1, count - 1)
    dashes = (-place * DASH, (DASH, gap))
    axes.plot(
        range(1, 1 + len(losses)),
        losses,
        color=CURVE_COLORS[place % len(CURVE_COLORS)],
        linewidth=2,
        linestyle=dashes,
        dash_capstyle="butt",
        label=label,
        marker="o" if len(losses) == 1 else "",
    )


def _difference(first: Sequence[float], second: Sequence[float]) -> float:
    """The largest difference where both curves are; not a number, if a loss there is none."""
    gaps = [abs(a - b) for a, b in zip(first, second, strict=False)]
    return float("nan") if any(gap != gap for gap in gaps) else max(gaps)


def _words(curves: Mapping[str, Sequence[float]], name: str, far: Mapping[str, float]) -> str:
    """The curves in words."""
    losses = curves[name]
    out = [
        f"Loss over {len(losses)} steps. {name}, the reference: from {losses[0]:.4g} to "
        f"{losses[-1]:.4g}."
    ]
    for other, gap in far.items():
        mine = curves[other]
        ends = f"from {mine[0]:.4g} to {mine[-1]:.4g}"
        ends += f" in {len(mine)} steps" if len(mine) < len(losses) else ""
        out.append(f"{other}: {ends}, largest difference from the reference {gap:.2g}.")
    return " ".join(out)
