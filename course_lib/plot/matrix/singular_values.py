"""Singular values of a matrix on their way to 1, step by step of an iteration.

Source: Jordan, "Muon: An optimizer for hidden layers in neural networks" (2024), whose coefficients
are made to lift small values fast.
"""

from __future__ import annotations

from collections.abc import Sequence

from course_lib.plot.player import svg
from course_lib.plot.player.figure import nothing_recorded
from course_lib.plot.player.player import Frame, Player
from course_lib.plot.player.style import BLUE, GREY, ORANGE

WIDE, HIGH = 640, 300
LEFT, RIGHT, TOP, FOOT = 56, 16, 56, 268
BAND = (0.7, 1.2)  # what five steps leave a value in


def singular_value_steps(history: Sequence[Sequence[float]]) -> Player:
    """A player of all singular values: a bar each, a frame for each step.

    A tick behind a bar is where the value was one step before. Bars inside the band from 0.7 to
    1.2, where the iteration of Muon ends, have the other colour.

    Args:
        history: the singular values at the beginning and after each step, of the same directions in
            the same order, as `(u.T @ x @ v.T).diagonal()` gives them.

    Raises:
        Refusal: there are no values, or not as many after each step.
    """
    if not history or not history[0] or len({len(values) for values in history}) > 1:
        found = f"{[len(values) for values in history]} values"
        raise nothing_recorded("singular values, step by step", found)
    tallest = max(max(values) for values in history)
    scale = (FOOT - TOP) / max(1.3, tallest)
    frames = [
        Frame((_bars(step, values, history[max(0, step - 1)], scale),), _caption(step, values))
        for step, values in enumerate(history)
    ]
    alt = " ".join(frame.caption for frame in frames)
    return Player(
        (WIDE, HIGH),
        _background(scale),
        [(0, 0)],
        frames,
        title=f"{len(history[0])} singular values over {len(history) - 1} steps",
        alt=alt,
        still=min(2, len(history) - 1),
    )


def inside(values: Sequence[float]) -> int:
    """How many of them are in the band."""
    return sum(BAND[0] <= value <= BAND[1] for value in values)


def _background(scale: float) -> str:
    """Axis, band and names."""
    top, low = (FOOT - scale * edge for edge in reversed(BAND))
    out = [svg.box(LEFT, top, WIDE - LEFT - RIGHT, low - top, kind="panel", radius=0)]
    for value in (0.0, 0.5, 1.0):
        y = FOOT - scale * value
        out.append(svg.line([(LEFT, y), (WIDE - RIGHT, y)], kind="line-edge", width=1))
        out.append(svg.text(LEFT - 8, y + 4, f"{value:g}", kind="soft", anchor="end"))
    words = "singular values, the largest of the beginning first; grey: one step before"
    out.append(svg.text(WIDE / 2, HIGH - 10, words, kind="soft"))
    out.append(svg.text(LEFT - 8, TOP - 12, "size", kind="soft", anchor="end"))
    return "".join(out)


def _bars(step: int, values: Sequence[float], before: Sequence[float], scale: float) -> str:
    """One frame."""
    pitch = (WIDE - LEFT - RIGHT) / len(values)
    out = []
    for place, (value, earlier) in enumerate(zip(values, before, strict=True)):
        x, width = LEFT + pitch * (place + 0.15), pitch * 0.7
        tall = max(1.0, scale * value)
        color = BLUE if inside([value]) else ORANGE
        out.append(svg.box(x, FOOT - tall, width, tall, fill=color, radius=1))
        y = FOOT - scale * earlier
        out.append(svg.line([(x, y), (x + width, y)], color=GREY, width=2))
    words = f"Step {step}: {inside(values)} of {len(values)} between {BAND[0]} and {BAND[1]} (blue)"
    head = svg.text(LEFT, 26, words, size=15, anchor="start", bold=True)
    return head + "".join(out)


def _caption(step: int, values: Sequence[float]) -> str:
    """What is to be seen."""
    spread = f"from {min(values):.3f} to {max(values):.2f}"
    if step == 0:
        return f"Divided by the norm, before the first step: values {spread}."
    steps = "1 step" if step == 1 else f"{step} steps"
    return f"After {steps}: values {spread}, {inside(values)} in the band."
