"""The losses of a run that was killed and started again, on top of one that nobody interrupted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from course_lib.plot.player.figure import as_picture, new_figure, nothing_recorded, style
from course_lib.plot.player.picture import Picture
from course_lib.plot.player.style import CURVE_COLORS, INK, LINE, PANEL, SOFT

Losses = Mapping[int, float]  # of each step, from 1 on


def restart_curves(
    alone: Sequence[float],
    attempts: Mapping[str, Losses],
    saved: Sequence[int],
    reference: str = "one process",
) -> Picture:
    """Each attempt's losses over the steps; where one ended, what was saved, what was run twice.

    Args:
        alone: losses of the run that nobody interrupted, from step 1 on.
        attempts: a name for each start of the job, in their order, to the steps that it made.
        saved: steps after which a checkpoint was complete.
        reference: what the run was that nobody interrupted.

    Raises:
        Refusal: an attempt made no step, or there is none.
    """
    if not attempts or not all(attempts.values()):
        raise nothing_recorded("a run that was started again", "an attempt without a step")
    made = [set(losses) for losses in attempts.values()]
    twice = sorted(step for one, after in zip(made, made[1:], strict=False) for step in one & after)
    with style():
        figure, axes = new_figure(7.6, 3.8)
        for step in twice:
            axes.axvspan(step - 0.5, step + 0.5, color=PANEL, linewidth=0)
        axes.plot(range(1, len(alone) + 1), alone, color=LINE, linewidth=8, label=reference)
        for left, (name, losses), color in zip(
            range(len(attempts))[::-1], attempts.items(), CURVE_COLORS, strict=False
        ):  # a step that was run twice shows both: the earlier mark is the larger one
            axes.plot(list(losses), list(losses.values()), "o-", color=color, linewidth=1.6,
                      markersize=4 + 4 * left, label=name)  # fmt: skip
        for losses in list(attempts.values())[:-1]:
            _killed(axes, *list(losses.items())[-1])
        if saved:
            _checkpoints(axes, saved)
        axes.set_xlabel("step  ·  grey: run twice" if twice else "step")
        axes.set_ylabel("loss")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(axis="y")
        axes.legend(loc="upper right", fontsize=9)
        one = len(attempts) == 1
        what = f"Loss {next(iter(attempts))}" if one else "A killed and resumed run"
        axes.set_title(f"{what}, compared with {reference}")
        words = _words(f"{len(alone)} steps; {reference}", attempts, saved, twice)
        return as_picture(figure, "losses before and after a restart", words, measured=True)


def _checkpoints(axes: Axes, saved: Sequence[int]) -> None:
    low = axes.get_ylim()[0]
    axes.plot(saved, [low] * len(saved), "^", color=INK, markersize=7, label="checkpoint",
              clip_on=False)  # fmt: skip
    axes.set_ylim(bottom=low)


def _killed(axes: Axes, step: int, loss: float) -> None:
    axes.plot([step], [loss], "x", color=INK, markersize=11, markeredgewidth=2.4)
    axes.annotate("killed in the next step", (step, loss), (8, 12), textcoords="offset points",
                  fontsize=9, color=SOFT)  # fmt: skip


def _words(
    below: str, attempts: Mapping[str, Losses], saved: Sequence[int], twice: Sequence[int]
) -> str:
    """The chart in words."""
    out = [f"Losses of {below} is the wide line below."]
    for name, losses in attempts.items():
        values = list(losses.values())
        out.append(f"{name}: steps {min(losses)} to {max(losses)}, loss {values[0]:.3f} to "
                   f"{values[-1]:.3f}.")  # fmt: skip
    if saved:
        out.append(f"Checkpoints after the steps {', '.join(map(str, saved))}.")
    out.append(f"Run twice: {', '.join(map(str, twice)) or 'none'}.")
    return " ".join(out)
