"""What the list of a format's numbers tells: its range, its subnormals, and where a number lands.

Paper: IEEE 754-2019, section 4.3.1; Micikevicius et al., "FP8 Formats for Deep Learning" (2022).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from course_lib.trace import Refusal

EXACT, ROUNDED, ZERO, OVERFLOW, SATURATED = "exact", "rounded", "zero", "overflow", "saturated"


@dataclass(frozen=True)
class Landing:
    """Where a number lands in a format.

    Attributes:
        x: the number.
        kind: EXACT, ROUNDED, ZERO (too small), OVERFLOW (infinity) or SATURATED (the largest).
        value: what it becomes; infinity if it overflows.
        below: the format's next number at or below x.
        above: the next one above; infinity if there is none.
        tie: whether x is halfway between the two.
    """

    x: float
    kind: str
    value: float
    below: float
    above: float
    tie: bool = False

    @property
    def error(self) -> float:
        """Relative error: 0.5 is 50 %."""
        return abs(self.value - self.x) / self.x


@dataclass(frozen=True)
class NumberRange:
    """A format as the ascending list of its numbers.

    Attributes:
        name: of the format.
        numbers: zero, then all positive finite ones.
        normal: the smallest normal number; below it, numbers are evenly spaced down to zero.
        saturates: whether a number too large becomes the largest one, and not infinity.
    """

    name: str
    numbers: tuple[float, ...]
    normal: float
    saturates: bool

    @property
    def smallest(self) -> float:
        """The smallest positive number."""
        return self.numbers[1]

    @property
    def largest(self) -> float:
        """The largest finite number."""
        return self.numbers[-1]

    @property
    def gap(self) -> float:
        """Distance of the two largest numbers."""
        return self.numbers[-1] - self.numbers[-2]

    @property
    def limit(self) -> float:
        """Halfway from the largest number to the one that would follow."""
        return self.largest + self.gap / 2

    @property
    def count(self) -> int:
        """How many positive numbers there are."""
        return len(self.numbers) - 1

    @property
    def subnormals(self) -> int:
        """How many of them are smaller than the smallest normal one."""
        return self.numbers.index(self.normal) - 1

    def between(self, low: float, high: float) -> int:
        """How many numbers are in [low, high)."""
        inside = [bisect_right(self.numbers, math.nextafter(end, 0.0)) for end in (low, high)]
        return inside[1] - inside[0]

    def land(self, x: float) -> Landing:
        """Where a positive number lands: at the nearest; of two equally near, at the even one.

        A number's place in the list is its code, and an even code is an even mantissa. What would
        follow the largest number decides what is too large.
        """
        if x >= self.largest + self.gap:
            return self._too_large(x)
        place = bisect_right(self.numbers, x) - 1
        below = self.numbers[place]
        last = place == self.count
        above = math.inf if last else self.numbers[place + 1]
        if x == below:
            return Landing(x, EXACT, x, below, above)
        middle = self.limit if last else (below + above) / 2
        if x < middle or (x == middle and place % 2 == 0):
            return Landing(x, ROUNDED if below else ZERO, below, below, above, x == middle)
        if last:
            return self._too_large(x)
        return Landing(x, ROUNDED, above, below, above, x == middle)

    def _too_large(self, x: float) -> Landing:
        kind, value = (SATURATED, self.largest) if self.saturates else (OVERFLOW, math.inf)
        return Landing(x, kind, value, self.largest, math.inf)


def read_formats(
    formats: Mapping[str, Any], saturate: Collection[str] | None = None
) -> list[NumberRange]:
    """The formats by what their numbers tell.

    Args:
        formats: name to its finite numbers, a tensor or a sequence in any order; negative ones
            and zero are left out, since the sign changes nothing.
        saturate: names of the formats in which a number too large becomes the largest. None: those
            that have no infinity: they stop short of a power of two, as E4M3FN, whose last code
            is NaN, or use every code for a number, as E2M1.

    Raises:
        Refusal: no format, a name that is none of them, or numbers that are not those of a
            floating-point format.
    """
    unknown = [name for name in saturate or () if name not in formats]
    if not formats or unknown:
        raise Refusal(
            f"a picture of formats: {', '.join(formats) or 'none'}",
            f"formats that saturate: {', '.join(saturate or ()) or 'none'}",
            "at least one format is drawn, and only those drawn can saturate",
        )
    out = []
    for name, values in formats.items():
        numbers = _positive(name, values)
        following = 2 * numbers[-1] - numbers[-2]
        full = math.frexp(following)[0] == 0.5
        every_code = math.frexp(len(numbers))[0] == 0.5
        stops = not full or every_code if saturate is None else name in saturate
        out.append(NumberRange(name, numbers, _smallest_normal(name, numbers), stops))
    return out


def _positive(name: str, values: Any) -> tuple[float, ...]:
    """Zero and the positive finite numbers, ascending."""
    listed: Iterable[float] = values.tolist() if hasattr(values, "tolist") else values
    numbers = sorted({float(value) for value in listed if 0 < value < math.inf})
    if len(numbers) < 3:
        raise _not_a_format(name, f"{len(numbers)} positive finite numbers")
    return (0.0, *numbers)


def _smallest_normal(name: str, numbers: tuple[float, ...]) -> float:
    """The half of the first number after which distances double, or the first number of all."""
    first = numbers[2] - numbers[1]
    if first < numbers[1]:  # zero is farther from the first number than the second is
        return numbers[1]
    pairs = zip(numbers, numbers[1:], strict=False)
    doubled = next((low for low, high in pairs if high - low > 1.5 * first), 0.0)
    if doubled / 2 not in numbers[1:]:
        raise _not_a_format(name, f"{len(numbers) - 1} numbers from {numbers[1]} on")
    return doubled / 2


def _not_a_format(name: str, found: str) -> Refusal:
    return Refusal(
        f"the number line of {name}",
        found,
        "a format has equally spaced numbers from zero on, and spacings that double from there",
    )
