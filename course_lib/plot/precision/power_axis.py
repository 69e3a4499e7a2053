"""A logarithmic axis in powers of two, as wide as narrow formats need; wide ones run out of it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from course_lib.plot.player import svg
from course_lib.plot.precision.number_range import NumberRange
from course_lib.plot.precision.number_words import plain, power_of_two

FAR = 44  # in powers of two from 1: a format that ends beyond would press all others together


@dataclass(frozen=True)
class PowerAxis:
    """From 2^low at `left` to 2^high at `left + width`.

    Attributes:
        left: in pixels.
        width: in pixels.
        low: exponent of the left end.
        high: exponent of the right end.
    """

    left: float
    width: float
    low: int
    high: int

    @property
    def step(self) -> float:
        """Width of a power of two."""
        return self.width / (self.high - self.low)

    @property
    def right(self) -> float:
        """The right end, in pixels."""
        return self.left + self.width

    def x(self, value: float) -> float:
        """Where a positive number is; what lies outside is at the end that it is beyond."""
        at = self.left + (math.log2(value) - self.low) * self.step
        return max(self.left, min(self.right, at))

    def has(self, value: float) -> bool:
        """Whether a number is inside."""
        return 2.0**self.low <= value <= 2.0**self.high

    def draw(self, y: float, top: float) -> str:
        """The axis at height y: powers of two and their decimal values; faint lines up to `top`."""
        every = next(n for n in (1, 2, 4, 8, 16, 32, 64) if n * self.step >= 52)
        out = [svg.line([(self.left, y), (self.right, y)], kind="line-edge", width=1)]
        for exponent in range(every * math.ceil(self.low / every), self.high + 1, every):
            at = self.x(2.0**exponent)
            out.append(svg.line([(at, top), (at, y + 4)], kind="line-edge", width=1))
            out.append(svg.text(at, y + 18, power_of_two(exponent), size=12))
            out.append(svg.text(at, y + 33, plain(2.0**exponent, 2), size=10, kind="soft"))
        return "".join(out)


def axis_for(
    ranges: Iterable[NumberRange], least: float, most: float, left: float, width: float
) -> PowerAxis:
    """An axis with room for numbers from `least` to `most`, and for the ends of formats near 1.

    Args:
        ranges: the formats; their ends beyond 2^±FAR are left outside, unless all of them are.
        least: smallest number to be shown, positive.
        most: the largest.
        left: left end in pixels.
        width: in pixels.
    """
    ends = [end for each in ranges for end in (each.smallest / 2, each.largest)]
    near = [end for end in ends if 2.0**-FAR <= end <= 2.0**FAR] or ends
    low = math.floor(math.log2(min(least, *near)))
    high = math.ceil(math.log2(max(most, *near)))
    return PowerAxis(left, width, low, high + 1)


def range_ends(axis: PowerAxis, each: NumberRange, y: float) -> str:
    """A format's smallest number, smallest normal one and largest, written under their places."""
    small, normal, largest = power(each.smallest), power(each.normal), plain(each.largest)
    at = axis.x(each.normal)
    if axis.has(each.largest):
        room = at + 5 * len(normal) + 3.5 * len(largest)  # to the right of the normal one's words
        out = svg.text(max(axis.x(each.largest), room), y, largest, size=11.5)
    else:
        out = svg.text(axis.right, y, f"to {plain(each.largest, 3)} ▸", size=11.5, anchor="end")
    if not axis.has(each.normal):
        words = f"◂ from {small}, normal from {normal}"
        return out + svg.text(axis.left, y, words, size=11.5, anchor="start")
    if each.subnormals:
        words = small if axis.has(each.smallest) else f"◂ {small}"
        place = min(axis.x(each.smallest) + 5, at - 8)
        out += svg.text(place, y, words, size=11.5, anchor="end")
    return out + svg.text(at - 3, y, normal, size=11.5, anchor="start")


def power(value: float) -> str:
    """A power of two as such, any other number in decimals."""
    front, exponent = math.frexp(value)
    return power_of_two(exponent - 1) if front == 0.5 else plain(value, 3)
