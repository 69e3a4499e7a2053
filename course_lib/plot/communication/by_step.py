"""Bytes of each step for several ways to train: a lane for each way, a bar for each step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.ticker import MaxNLocator

from course_lib.plot.player.figure import as_picture, new_figure, nothing_recorded, style
from course_lib.plot.player.picture import Picture
from course_lib.plot.player.style import CURVE_COLORS, SOFT, format_bytes


def bytes_by_step(sent: Mapping[str, Sequence[int]]) -> Picture:
    """Bars over steps, all lanes at one scale; at the end of a lane its sum.

    Args:
        sent: name of a way to the bytes that a rank sends, by step.

    Raises:
        Refusal: no way sends anything.
    """
    most = max((max(each, default=0) for each in sent.values()), default=0)
    if not most:
        raise nothing_recorded("bytes by step", f"{len(sent)} ways without a byte")
    with style():
        figure, axes = new_figure(8.2, 0.75 * len(sent) + 1.1)
        for lane, counts in enumerate(reversed(list(sent.values()))):
            color = CURVE_COLORS[(len(sent) - 1 - lane) % len(CURVE_COLORS)]
            steps = range(1, 1 + len(counts))
            heights = [0.8 * count / most for count in counts]
            axes.bar(steps, heights, bottom=lane, width=0.7, color=color)
            axes.axhline(lane, color=SOFT, linewidth=0.5)
            axes.annotate(
                f"sum {format_bytes(sum(counts))}", (1.0, lane + 0.2),
                xycoords=("axes fraction", "data"), xytext=(6, 0), textcoords="offset points",
                fontsize=9,
            )  # fmt: skip
        axes.set_yticks([lane + 0.3 for lane in range(len(sent))], list(sent)[::-1])
        axes.tick_params(axis="y", length=0)
        axes.set_ylim(-0.05, len(sent))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlabel("step")
        axes.set_title(f"Sent by a rank in each step (tallest bar: {format_bytes(most)})")
        words = "; ".join(
            f"{name}: {format_bytes(sum(each))} in {sum(map(bool, each))} of {len(each)} steps, "
            f"at most {format_bytes(max(each))}"
            for name, each in sent.items()
        )
        return as_picture(figure, "bytes by step", f"Bytes by step. {words}.", measured=True)
