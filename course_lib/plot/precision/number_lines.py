"""Number lines of floating-point formats: how far they reach, how dense they are, where x lands.

Paper: Micikevicius et al., "FP8 Formats for Deep Learning" (2022), table 1, as a picture.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from course_lib.plot.player import svg
from course_lib.plot.player.player import Frame, Player
from course_lib.plot.player.style import VERMILLION, text_on
from course_lib.plot.precision.fates import NORMAL, SUBNORMAL, Box, painted
from course_lib.plot.precision.number_landing import around, dot, story
from course_lib.plot.precision.number_range import NumberRange, read_formats
from course_lib.plot.precision.number_words import percent, plain
from course_lib.plot.precision.power_axis import axis_for, power, range_ends
from course_lib.trace import Refusal

WIDE, TOP, ROW, TALL, BASE = 920, 84, 96, 44, 54
LEFT, AXIS, ZOOM, SPAN = 16, 440, 650, 240
APART = 3.0  # pixels that a number must be from its neighbours to have a mark of its own
SAMPLES = (1.0, 1.06, 1.0625, 0.3, 300.0, 448.0, 500.0, 70_000.0, 0.01, 0.001, 1e-6, 1e-10)


def number_lines(
    formats: Mapping[str, Any],
    samples: Sequence[float] = SAMPLES,
    saturate: Collection[str] | None = None,
) -> Player:
    """A player that moves a number x over the number lines of formats, one frame a sample.

    On the left, all lines on one axis of powers of two. The height of a line is its precision: one
    step of height for each doubling of the numbers that the format has in a power of two. On the
    right, the two numbers around x in each format, with the one that x becomes.

    Args:
        formats: name to all of its finite numbers (`course_lib.precision.values`), in any order.
        samples: positive numbers, one a frame, taken as exact.
        saturate: names of the formats in which a number too large becomes the largest. None: those
            that have no infinity, which their numbers tell (E4M3FN, E2M1).

    Raises:
        Refusal: no format, numbers of no format, an unknown name, or no positive finite sample.
    """
    ranges = read_formats(formats, saturate)
    if not samples or not all(0 < x < math.inf for x in samples):
        raise Refusal(
            f"place {len(samples)} samples on number lines",
            ", ".join(map(str, samples)) or "none",
            "a logarithmic axis shows positive finite numbers, and a player has a frame for each",
        )
    drawing = NumberDrawing(ranges, [float(x) for x in samples])
    frames = [drawing.frame(x) for x in drawing.samples]
    return Player(
        drawing.size,
        drawing.background(),
        drawing.places(),
        frames,
        title=f"number lines of {', '.join(formats)}",
        alt=drawing.alt(),
        still=len(frames[:2]) - 1,
    )


class NumberDrawing:
    """Where the lines are.

    Args:
        ranges: the formats, from top to bottom.
        samples: the numbers that are placed.
    """

    def __init__(self, ranges: Sequence[NumberRange], samples: Sequence[float]) -> None:
        self.ranges, self.samples = ranges, samples
        self.axis = axis_for(ranges, min(samples), max(samples), 172, AXIS)
        precision = {each.name: self.precision(each) for each in ranges}
        self.unit = TALL / (1 + max(max(bits.values(), default=0.0) for bits in precision.values()))
        self.heights = {
            name: {power: self.unit * (1 + bits[power]) for power in bits}
            for name, bits in precision.items()
        }
        self.foot = TOP + ROW * len(ranges) - 8
        self.size = (WIDE, self.foot + 88)

    def precision(self, each: NumberRange) -> dict[int, float]:
        """Power of two on the axis to log2 of how many numbers the format has there."""
        counts = {
            power: each.between(2.0**power, 2.0 ** (power + 1))
            for power in range(self.axis.low, self.axis.high)
        }
        return {power: math.log2(count) for power, count in counts.items() if count}

    def base(self, row: int) -> float:
        """Height of a line's foot."""
        return TOP + ROW * row + BASE

    def places(self) -> list[svg.Point]:
        """Origins of the parts: x over all lines, then what lies around it in each format."""
        return [(0, 0), *((ZOOM, TOP + ROW * row) for row in range(len(self.ranges)))]

    # --- what stays ----------------------------------------------------------------------------
    def background(self) -> str:
        """The lines, the axis and the words around them."""
        out = [
            svg.text(LEFT, 26, "Where x lands in each format", size=15, anchor="start", bold=True)
        ]
        out.append(svg.text(ZOOM, 50, "the numbers around x", size=12, anchor="start", bold=True))
        out.append(
            svg.text(
                ZOOM,
                66,
                "each to its own scale; dashed: halfway",
                size=11,
                kind="soft",
                anchor="start",
            )
        )
        out.append(self.axis.draw(self.foot, TOP - 4))
        for row, each in enumerate(self.ranges):
            out += [self._name(row, each), self._band(row, each)]
            out.append(range_ends(self.axis, each, self.base(row) + 19))
        return "".join(out) + self._legend(self.foot + 60)

    def _name(self, row: int, each: NumberRange) -> str:
        """A format's name, and how many numbers it has."""
        y = self.base(row)
        facts = (
            f"{plain(each.count)} numbers above 0",
            f"{plain(each.subnormals)} subnormal: {percent(each.subnormals, each.count)}",
            f"{_per_power(each)} in a power of two",
        )
        return svg.text(LEFT, y - 26, each.name, size=15, anchor="start", bold=True) + "".join(
            svg.text(LEFT, y - 10 + 15 * i, words, size=11, kind="soft", anchor="start")
            for i, words in enumerate(facts)
        )

    def _band(self, row: int, each: NumberRange) -> str:
        """The line: a staircase, subnormals striped, with a mark for each number that has room."""
        y, last = self.base(row), self.axis.x(each.largest)
        steps: dict[str, list[Box]] = {SUBNORMAL: [], NORMAL: []}
        for low, tall in self.heights[each.name].items():
            left, right = self.axis.x(2.0**low), self.axis.x(2.0 ** (low + 1))
            name = SUBNORMAL if 2.0**low < each.normal else NORMAL
            steps[name].append((left, y - tall, min(right, last) - left, tall))
        drawn = "".join(painted(name, boxes) for name, boxes in steps.items() if boxes)
        return drawn + self._marks(y, each)

    def _marks(self, y: float, each: NumberRange) -> str:
        """Short lines below the foot where numbers can be told apart."""
        shown = [v for v in each.numbers[1:] if self.axis.has(v)]
        ends = [-math.inf, *map(self.axis.x, shown), math.inf]
        marks = "".join(
            f"M{svg.number(at)} {svg.number(y + 1)}v5"
            for before, at, after in zip(ends, ends[1:], ends[2:], strict=False)
            if min(at - before, after - at) >= APART
        )
        return f'<path d="{marks}" class="ink-edge" stroke-width="1"/>' if marks else ""

    def _legend(self, y: float) -> str:
        """What colours, heights and the numbers below the lines are."""
        out = painted(SUBNORMAL, [(LEFT, y - 10, 15, 13)])
        out += painted(NORMAL, [(LEFT + 110, y - 10, 15, 13)])
        words = {
            22: "subnormal",
            132: "normal",
            220: "height of a line: how many numbers it has in a power of two; "
            "one step more for each doubling",
        }
        out += "".join(
            svg.text(LEFT + x, y + 1, text, size=11.5, anchor="start") for x, text in words.items()
        )
        below = "below a line: its smallest number, its smallest normal number, its largest number"
        return out + svg.text(LEFT + 220, y + 18, below, size=11.5, anchor="start")

    # --- what changes --------------------------------------------------------------------------
    def frame(self, x: float) -> Frame:
        """One number on all lines."""
        landings = [each.land(x) for each in self.ranges]
        at, words = self.axis.x(x), f"x = {plain(x)}"
        wide = 18 + 7.4 * len(words)
        middle = max(self.axis.left + wide / 2, min(self.axis.right - wide / 2, at))
        out = [svg.pill(middle, 58, words, VERMILLION, text_on(VERMILLION), wide)]
        for row, landing in enumerate(landings):
            y = self.base(row)
            out.append(svg.line([(at, y - TALL - 6), (at, y + 5)], color=VERMILLION))
            if 0 < landing.value < math.inf:
                out.append(dot(self.axis.x(landing.value), y))
        pairs = zip(self.ranges, landings, strict=True)
        parts = ("".join(out), *(around(each, landing) for each, landing in pairs))
        return Frame(parts, self.caption(x))

    # --- words ---------------------------------------------------------------------------------
    def caption(self, x: float) -> str:
        """Where x lands in each format, and why."""
        told: dict[str, list[str]] = {}
        for each in self.ranges:
            told.setdefault(story(each, each.land(x)), []).append(each.name)
        words = (f"{', '.join(names)}: {story}" for story, names in told.items())
        return f"x = {plain(x)}. {' '.join(words)}"

    def alt(self) -> str:
        """The ranges of all formats, and all frames."""
        out = ["Number lines of floating-point formats on one axis of powers of two."]
        for each in self.ranges:
            out.append(
                f"{each.name}: {plain(each.count)} positive numbers, the smallest "
                f"{_both(each.smallest)}, normal ones from {_both(each.normal)} to "
                f"{plain(each.largest)}; {plain(each.subnormals)} are subnormal "
                f"({percent(each.subnormals, each.count)}); {_per_power(each)} normal ones in a "
                "power of two."
            )
        return " ".join([*out, *map(self.caption, self.samples)])


def _per_power(each: NumberRange) -> str:
    """How many numbers a power of two of normal ones has."""
    return plain(each.between(each.normal, 2 * each.normal))


def _both(value: float) -> str:
    """`2⁻⁹ (0.00195)`."""
    return f"{power(value)} ({plain(value, 3)})"
