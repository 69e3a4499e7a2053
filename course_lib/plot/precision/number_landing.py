"""A number between the two of a format around it: drawn, in a few words, and in a sentence.

Paper: IEEE 754-2019, section 4.3.1 (roundTiesToEven).
"""

from __future__ import annotations

import math

from course_lib.plot.player import svg
from course_lib.plot.player.style import VERMILLION
from course_lib.plot.precision.number_range import (
    EXACT,
    OVERFLOW,
    SATURATED,
    ZERO,
    Landing,
    NumberRange,
)
from course_lib.plot.precision.number_words import percent, plain

SPAN, FAR = (
    240,
    0.85,
)  # pixels between the neighbours; how far out x is, if it is beyond all numbers


def around(each: NumberRange, landing: Landing) -> str:
    """The numbers around x, x between them to scale, and the one that it becomes.

    A number that the format has is drawn between those before and after it. Beyond the largest
    number the line is dashed, as long as one more spacing; numbers farther out are not to scale.
    """
    beyond, (low, high) = landing.above == math.inf, _ends(each, landing)

    def at(value: float) -> float:
        part = (value - low) / (high - low)
        return SPAN * (min(FAR, part) if value > each.largest else part)

    out = [svg.text(0, 14, _verdict(landing), size=13, anchor="start", bold=True)]
    out.append(_line(at(each.largest) if beyond else SPAN, beyond))
    if landing.kind != EXACT:
        middle = at(each.limit if beyond else (low + high) / 2)
        out.append(svg.line([(middle, 34), (middle, 50)], width=1, dashed=True))
    end = _too_large(each) if beyond else plain(high)
    out.append(svg.text(0, 64, plain(low), size=11.5, anchor="start"))
    out.append(svg.text(SPAN + 6, 64, end, size=11.5, anchor="end"))
    overflows = landing.value == math.inf
    out.append(_move(at(landing.x), SPAN if overflows else at(landing.value)))
    return "".join(out) + ("" if overflows else dot(at(landing.value), 42))


def _ends(each: NumberRange, landing: Landing) -> tuple[float, float]:
    """What is at the line's left and right end."""
    low = landing.below
    if landing.kind == EXACT:
        low = each.numbers[each.numbers.index(low) - 1]
    return low, each.largest + each.gap if landing.above == math.inf else landing.above


def _line(solid: float, beyond: bool) -> str:
    """The line, its ends, and an arrow where there are no more numbers."""
    out = svg.line([(0, 36), (0, 48)], width=1.5) + svg.line([(0, 42), (solid, 42)], width=1.5)
    if beyond:
        return out + svg.arrow([(solid, 42), (SPAN + 8, 42)], dashed=True)
    return out + svg.line([(SPAN, 36), (SPAN, 48)], width=1.5)


def _move(x: float, to: float) -> str:
    """Where x is, and the way to what it becomes, if that is far enough for an arrow."""
    out = svg.line([(x, 26), (x, 48)], color=VERMILLION)
    return out + (svg.arrow([(x, 28), (to, 28)], color=VERMILLION) if abs(x - to) > 14 else "")


def dot(x: float, y: float) -> str:
    """The number that x becomes."""
    return (
        f'<circle cx="{svg.number(x)}" cy="{svg.number(y)}" r="5" fill="{VERMILLION}" '
        'stroke="#000" stroke-width="1.5"/>'
    )


# --- words -------------------------------------------------------------------------------------
def _verdict(landing: Landing) -> str:
    """`→ 1.125: error 6.1 %`."""
    error = f"error {percent(landing.error)}"
    words = {
        EXACT: "exact",
        ZERO: "becomes 0",
        OVERFLOW: "overflows",
        SATURATED: f"saturates, {error}",
    }.get(landing.kind, f"{error}, a tie" if landing.tie else error)
    return f"→ {plain(landing.value)}: {words}"


def _too_large(each: NumberRange) -> str:
    """What numbers become that are too large; at the limit itself, the even number wins."""
    word = "beyond" if each.count % 2 == 0 else "from"
    return f"{word} {plain(each.limit)}: {plain(each.largest) if each.saturates else '∞'}"


def story(each: NumberRange, landing: Landing) -> str:
    """Where x lands and why, in a sentence."""
    error = f"error {percent(landing.error)}"
    if landing.kind == ZERO:
        near = "exactly half" if landing.tie else "less than half"
        return f"becomes 0, being {near} of the smallest number, {plain(each.smallest, 3)}."
    if landing.kind == OVERFLOW:
        return f"overflows to infinity, being beyond the largest number, {plain(each.largest)}."
    if landing.kind == SATURATED:
        return f"saturates at the largest number, {plain(each.largest)}; {error}."
    subnormal = ", which is subnormal" if landing.value < each.normal else ""
    if landing.kind == EXACT:
        return f"exactly this number{subnormal}."
    tie = " (a tie: the even one)" if landing.tie else ""
    return f"rounds to {plain(landing.value)}{subnormal}{tie}; {error}."
