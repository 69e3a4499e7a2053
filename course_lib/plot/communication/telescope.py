"""Sums over steps: what should have arrived, and what has, with and without a memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.ticker import MaxNLocator

from course_lib.plot.player.figure import as_picture, new_figure, nothing_recorded, style
from course_lib.plot.player.picture import Picture
from course_lib.plot.player.style import CURVE_COLORS, LINE


def arrived_sums(
    gradients: Sequence[float], arrived: Mapping[str, Sequence[float]], what: str
) -> Picture:
    """Running sums of one element: of its gradients, and of what was sent for them.

    Args:
        gradients: by step.
        arrived: name of a way to send to what arrived, by step.
        what: whose element it is, to begin the title with.

    Raises:
        Refusal: there is nothing to add up, or not as many steps.
    """
    if not gradients or {len(each) for each in arrived.values()} != {len(gradients)}:
        lengths = [len(each) for each in arrived.values()]
        raise nothing_recorded("sums over steps", f"{len(gradients)} gradients, {lengths} sent")
    right = _running(gradients)
    with style():
        figure, axes = new_figure(7.6, 3.8)
        steps = range(1, 1 + len(right))
        axes.plot(steps, right, color=LINE, linewidth=6, label="sum of the gradients")
        for color, (name, values) in zip(CURVE_COLORS, arrived.items(), strict=False):
            axes.step(steps, _running(values), where="mid", color=color, linewidth=1.8, label=name)
        axes.set_xlabel("step")
        axes.set_ylabel("sum so far")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid()
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=9)
        axes.set_title(f"{what}: how much has arrived")
        ends = "; ".join(f"{name}, {_running(each)[-1]:.2f}" for name, each in arrived.items())
        alt = f"Sums over {len(right)} steps. The gradients add up to {right[-1]:.2f}. Sent: {ends}"
        return as_picture(figure, "sums that arrived", f"{alt}.", measured=True)


def _running(values: Sequence[float]) -> list[float]:
    return [sum(values[: n + 1]) for n in range(len(values))]
