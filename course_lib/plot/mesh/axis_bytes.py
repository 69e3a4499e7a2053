"""What a rank sends in a step on each axis of a mesh: inside its node, and between nodes.

Paper: Narayanan et al., "Megatron-LM" (2021), section 3, which derives the layout from these bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from course_lib.plot.player import svg
from course_lib.plot.player.figure import nothing_recorded
from course_lib.plot.player.picture import Picture
from course_lib.plot.player.style import GREEN, ORANGE, format_bytes

ROW, BAR, VALUE = 38.0, 13.0, 62.0  # of an axis, of one bar, of the number at its end
INSIDE, BETWEEN = "upper bar: inside the node", "lower bar: between nodes"
MUCH = 50  # if one axis has this many times the bytes of another, the scale is logarithmic
WIDE, TOP, TICK = 700.0, 66.0, 56  # TICK: the least distance of two faint lines

Sent = Mapping[str, tuple[float, float]]  # by the axis's label: bytes inside a node, between nodes


def axis_bytes(sent: Sent, title: str = "Bytes that a rank sends in a step") -> Picture:
    """Two bars for each axis: the bytes that stay in the node, and those that go to another.

    Args:
        sent: inside and between by axis, as `split_bytes` makes them; drawn in this order. If the
            largest number is over 50 times the smallest, the scale is logarithmic, and says so.
        title: what it is, in a few words.

    Raises:
        Refusal: nothing is sent on any axis, or less.
    """
    bars = ByteBars(sent, Place(16, TOP, WIDE - 32, label_width(sent)))
    head = svg.text(16, 24, title, size=15, anchor="start", bold=True)
    alt = f"{title}, by axis: {byte_words(sent)}"
    body = head + bar_legend(16, 48, across=True) + bars.draw()
    return Picture(svg.document(WIDE, bars.foot + 10, body, alt), alt, title)


@dataclass(frozen=True)
class Place:
    """Where bars are.

    Attributes:
        left: left edge of the names.
        top: upper edge of the first axis.
        width: of names, bars and numbers.
        label: width of the names.
    """

    left: float
    top: float
    width: float
    label: float

    @property
    def zero(self) -> float:
        """Where bars begin."""
        return self.left + self.label

    @property
    def room(self) -> float:
        """Width of the longest bar."""
        return self.width - self.label - VALUE


class ByteBars:
    """The bars, and their scale.

    Args:
        sent: inside and between by axis.
        place: where they are.

    Attributes:
        logarithmic: whether each step along the axis is a factor.

    Raises:
        Refusal: nothing is sent on any axis, or less.
    """

    def __init__(self, sent: Sent, place: Place) -> None:
        counts = [count for both in sent.values() for count in both]
        if not any(counts) or min(counts) < 0:
            found = "no bytes" if not any(counts) else f"{min(counts):g} bytes"
            raise nothing_recorded("bytes by axis", found)
        some = [count for count in counts if count]
        self.sent, self.place = sent, place
        self.logarithmic = max(some) > MUCH * min(some)
        # On a logarithmic scale zero has no place: half of the least is where bars begin.
        self.low = math.log2(min(some)) - 1.0
        self.high = math.log2(max(some)) if self.logarithmic else float(max(some))

    @property
    def foot(self) -> float:
        """Lower edge of the axis's words."""
        return self.place.top + ROW * len(self.sent) + 20 + 15 * self.logarithmic

    def row(self, name: str) -> float:
        """Upper edge of an axis's row."""
        return self.place.top + ROW * list(self.sent).index(name)

    def length(self, count: float) -> float:
        """How long the bar for `count` bytes is."""
        if not count:
            return 0.0
        if not self.logarithmic:
            return self.place.room * count / self.high
        return self.place.room * (math.log2(count) - self.low) / (self.high - self.low)

    def draw(self) -> str:
        """Names, bars, numbers and the axis."""
        return self._axis() + "".join(map(self._row, self.sent))

    def _row(self, name: str) -> str:
        y, zero, out = self.row(name), self.place.zero, []
        out.append(svg.text(zero - 8, y + ROW / 2 + 4, name, anchor="end", bold=True))
        for count, color, below in zip(self.sent[name], (GREEN, ORANGE), (4, 19), strict=True):
            long = self.length(count)
            if long:
                out.append(svg.box(zero, y + below, long, BAR, fill=color, radius=1))
            words, kind = format_bytes(count), "ink" if count else "soft"
            out.append(
                svg.text(
                    zero + long + 5, y + below + 10.5, words, kind=kind, size=11, anchor="start"
                )
            )
        return "".join(out)

    def _axis(self) -> str:
        """Faint lines with bytes under them, and whether they are factors."""
        y, out = self.place.top + ROW * len(self.sent), []
        for count in self.ticks():
            x = self.place.zero + self.length(count)
            out.append(svg.line([(x, self.place.top), (x, y + 2)], kind="line-edge", width=1))
            out.append(svg.text(x, y + 15, format_bytes(count), kind="soft", size=10.5))
        if self.logarithmic:
            words = f"logarithmic: × {2 ** self._every():,} per line"
            out.append(
                svg.text(self.place.left, y + 31, words, kind="soft", size=10.5, anchor="start")
            )
        return "".join(out)

    def ticks(self) -> list[float]:
        """Bytes at the faint lines: multiples, or powers, of a power of two, far enough apart."""
        if not self.logarithmic:
            step = 2.0 ** math.ceil(math.log2(self.high * TICK / self.place.room))
            return [step * k for k in range(int(self.high / step) + 1)]
        every = self._every()
        first, last = math.ceil(self.low / every), math.floor(self.high / every)
        return [2.0 ** (every * k) for k in range(first, last + 1)]

    def _every(self) -> int:
        """How many doublings it is from one faint line to the next, of a logarithmic scale."""
        least = (self.high - self.low) * TICK / self.place.room
        return next((n for n in (1, 2, 5, 10, 20) if n >= least), 40)


def label_width(names: Iterable[str]) -> float:
    """Room for the longest of these names, in bold."""
    return max((8.0 * len(name) + 14 for name in names), default=0.0)


def bar_legend(x: float, y: float, across: bool) -> str:
    """What the two colours are, side by side or one below the other."""
    out = []
    for number, (words, color) in enumerate(((INSIDE, GREEN), (BETWEEN, ORANGE))):
        at = (x + 210 * number, y) if across else (x, y + 17 * number)
        out.append(svg.box(at[0], at[1] - 10, 13, 13, fill=color, radius=3))
        out.append(svg.text(at[0] + 18, at[1] + 1, words, size=11.5, anchor="start"))
    return "".join(out)


def byte_words(sent: Sent) -> str:
    """`tp 6 MiB inside the node, 0 B between nodes; ...`."""
    each = (
        f"{name} {format_bytes(inside)} inside the node, {format_bytes(between)} between nodes"
        for name, (inside, between) in sent.items()
    )
    return "; ".join(each) + "."
