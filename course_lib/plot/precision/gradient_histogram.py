"""Gradients on the number line of a format: a loss scale moves all of them to the right.

Paper: Micikevicius et al., "Mixed Precision Training" (2018), figures 2 and 3, with a slider.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import torch

from course_lib.plot.player import svg
from course_lib.plot.player.player import Frame, Player
from course_lib.plot.player.style import VERMILLION, text_on
from course_lib.plot.precision.fates import FATES, LARGE, NORMAL, SUBNORMAL, painted
from course_lib.plot.precision.magnitudes import check_counts, magnitudes, sort_out
from course_lib.plot.precision.number_range import NumberRange, read_formats
from course_lib.plot.precision.number_words import percent, plain, power_of_two, tenths
from course_lib.plot.precision.power_axis import axis_for, range_ends
from course_lib.trace import Refusal

WIDE, TOP, ROW, TALL, BASE = 920, 76, 158, 100, 110
AXIS, TABLE = 570, 668
# Of the gradients, the smallest: all of these are in the first bar. Where a sum should be zero and
# is not, they are what rounding left, another number and another size on another processor.
TAIL = 2e-3
SCALES = (1.0, 2.0**4, 2.0**8, 2.0**12, 2.0**16)


def gradient_histogram(
    gradients: torch.Tensor | Iterable[torch.Tensor] | Mapping[float, int],
    formats: Mapping[str, Any],
    scales: Sequence[float] = SCALES,
    saturate: Collection[str] | None = None,
) -> Player:
    """A player of the magnitudes of gradients in powers of two, one frame a loss scale.

    Each format has a histogram of its own, whose bars are coloured and striped by what becomes of
    the gradients in it; below it is the format's range. A bar that is not empty is at least two
    pixels high. The outline is the histogram of the first frame. Heights are whole pixels and
    shares tenths of a percent, which rounding in the gradients does not change.

    Args:
        gradients: of one step, or their counts by lower edge of a bin (`magnitudes`), which ranks
            can make and hand over.
        formats: name to all of its finite numbers (`course_lib.precision.values`), in any order.
        scales: powers of two, which move whole bins.
        saturate: names of the formats in which a gradient too large becomes the largest number, and
            not infinity; by default those that have no infinity, as for `number_lines`.

    Raises:
        Refusal: no gradient that is finite and not zero, no format, or an unknown name, or a
            scale that is not a power of two.
    """
    counts = gradients if isinstance(gradients, Mapping) else magnitudes(gradients)
    check_counts(counts)
    if not scales or not all(0 < s < math.inf and math.frexp(s)[0] == 0.5 for s in scales):
        raise Refusal(
            f"scale gradients by {', '.join(map(str, scales)) or 'nothing'}",
            "a scale that is not a power of two, or none",
            "a power of two changes no digit of a gradient, and there is a frame for each",
        )
    drawing = Histograms(
        counts, read_formats(formats, saturate), [float(scale) for scale in scales]
    )
    frames = [drawing.frame(scale) for scale in drawing.scales]
    return Player(
        drawing.size,
        drawing.background(),
        drawing.places(),
        frames,
        title=f"gradients in {', '.join(formats)}",
        alt=drawing.alt(),
    )


class Histograms:
    """Where the histograms are, and what is in their bars.

    Args:
        counts: lower edge of a bin to how many gradients are in it.
        ranges: the formats, from top to bottom.
        scales: one a frame.
    """

    def __init__(
        self, counts: Mapping[float, int], ranges: Sequence[NumberRange], scales: Sequence[float]
    ) -> None:
        self.counts, self.ranges, self.scales = counts, ranges, scales
        self.zeros = counts.get(0.0, 0)
        self.total = sum(counts.values()) - self.zeros
        edges = sorted(edge for edge, count in counts.items() if count and 0 < edge < math.inf)
        self.first, self.last = _power(self._tail(edges)), _power(edges[-1])
        self.has_tail = _power(edges[0]) < self.first
        self.axis = axis_for(
            ranges, 2.0**self.first * min(scales), edges[-1] * max(scales), 60, AXIS
        )
        self.sorted = {
            (scale, each.name): self._bars(sort_out(counts, scale, each), scale)
            for scale in scales
            for each in ranges
        }
        self.most = max(
            sum(bars.values(), Counter()).most_common(1)[0][1] for bars in self.sorted.values()
        )
        self.foot = TOP + ROW * len(ranges) - 8
        self.size = (WIDE, self.foot + 44)

    def _tail(self, edges: Sequence[float]) -> float:
        """The edge below which at most the part TAIL of the gradients is."""
        below = 0
        for edge in edges:
            below += self.counts[edge]
            if below > TAIL * self.total:
                return edge
        return edges[-1]

    def _bars(
        self, fates: Mapping[str, Mapping[float, int]], scale: float
    ) -> dict[str, Counter[int]]:
        """The same counts by powers that are on the axis: a tail is in the bar that it ends in."""
        first, last = max(self.axis.low, self.first + _power(scale)), self.axis.high - 1
        out: dict[str, Counter[int]] = {}
        for name, powers in fates.items():
            out[name] = Counter()
            for power, count in powers.items():
                out[name][int(max(first, min(last, power)))] += count
        return out

    def base(self, row: int) -> float:
        """The foot of a format's bars."""
        return TOP + ROW * row + BASE

    def places(self) -> list[svg.Point]:
        """Origins of the parts: the scale, then bars and numbers of each format."""
        return [(0, 0), *((0, self.base(row)) for row in range(len(self.ranges)))]

    # --- what stays ----------------------------------------------------------------------------
    def background(self) -> str:
        """The axes, the formats' ranges, and the words of the tables."""
        title = "Magnitudes of gradients, times the loss scale"
        out = [svg.text(16, 26, title, size=15, anchor="start", bold=True)]
        words = f"{self._count()}; {self._not_shown()}"
        out.append(svg.text(16, 47, words, size=11.5, kind="soft", anchor="start"))
        out.append(self.axis.draw(self.foot, TOP))
        for row, each in enumerate(self.ranges):
            out += [self._grid(row), self._outline(row), self._range(row, each)]
            out.append(self._table(row, each))
        return "".join(out)

    def _grid(self, row: int) -> str:
        """One line of the vertical scale, and the foot."""
        y, share = self.base(row), self.most / self.total
        step = next(s for s in (0.5, 0.2, 0.1, 0.05, 0.02, 0.01) if s <= share or s == 0.01)
        at = y - TALL * step / share
        ends = (self.axis.left, self.axis.right)
        return (
            svg.line([(x, at) for x in ends], kind="line-edge", width=1, dashed=True)
            + svg.text(self.axis.left - 6, at + 4, percent(step), size=11, anchor="end")
            + svg.line([(x, y) for x in ends], width=1)
        )

    def _outline(self, row: int) -> str:
        """The histogram of the first frame, without its colours."""
        bars = sum(self.sorted[self.scales[0], self.ranges[row].name].values(), Counter())
        y = self.base(row)
        path = f"M{svg.number(self.axis.left)} {svg.number(y)}" + "".join(
            f"V{svg.number(y - self._height(bars[power]))}h{svg.number(self.axis.step)}"
            for power in range(self.axis.low, self.axis.high)
        )
        return f'<path d="{path}V{svg.number(y)}" class="line-edge" stroke-width="1.5"/>'

    def _range(self, row: int, each: NumberRange) -> str:
        """The format's subnormal and normal numbers, as a strip below the bars."""
        y, x = self.base(row) + 4, self.axis.x
        out = ""
        for name, low, high in (
            (SUBNORMAL, each.smallest, each.normal),
            (NORMAL, each.normal, each.largest),
        ):
            if x(high) > x(low):
                out += painted(name, [(x(low), y, x(high) - x(low), 8)])
        return out + range_ends(self.axis, each, y + 21)

    def _table(self, row: int, each: NumberRange) -> str:
        """The format's name, and swatches with their words."""
        y = self.base(row) - TALL
        out = [svg.text(TABLE, y + 12, each.name, size=15, anchor="start", bold=True)]
        for place, name in enumerate(reversed(FATES)):
            at = y + 26 + 19 * place
            out.append(painted(name, [(TABLE, at, 16, 13)]))
            out.append(svg.text(TABLE + 24, at + 11, _word(name, each), size=12, anchor="start"))
        return "".join(out)

    # --- what changes --------------------------------------------------------------------------
    def frame(self, scale: float) -> Frame:
        """One loss scale."""
        pill = svg.pill(TABLE + 110, 26, _scale_words(scale), VERMILLION, text_on(VERMILLION), 220)
        rows = (self._bars_and_shares(scale, each) for each in self.ranges)
        return Frame((pill, *rows), self.caption(scale))

    def _bars_and_shares(self, scale: float, each: NumberRange) -> str:
        """The bars of one format, and the numbers in its table."""
        bars, out = self.sorted[scale, each.name], []
        below: Counter[int] = Counter()
        for name in FATES:
            boxes = []
            for power, count in sorted(bars[name].items()):
                x, tall = self.axis.x(2.0**power) + 0.5, self._height(count)
                y = -self._height(below[power]) - tall
                boxes.append((x, y, self.axis.step - 1, tall))
                below[power] += count
            out.append(painted(name, boxes) if boxes else "")
        for place, name in enumerate(reversed(FATES)):
            words = tenths(bars[name].total(), self.total)
            y = 26 + 19 * place + 11 - TALL
            out.append(svg.text(TABLE + 220, y, words, size=12, anchor="end", bold=True))
        return "".join(out)

    def _height(self, count: int) -> float:
        """Of a bar, in whole pixels; one that is not empty can be seen."""
        return float(max(2, round(TALL * count / self.most))) if count else 0.0

    # --- words ---------------------------------------------------------------------------------
    def caption(self, scale: float) -> str:
        """What becomes of the gradients in each format."""
        out = [f"{_scale_words(scale).capitalize()}."]
        for each in self.ranges:
            bars = self.sorted[scale, each.name]
            many = {name: bars[name].total() for name in FATES}
            shares = [
                f"{tenths(many[name], self.total)} {_word(name, each)}"
                for name in FATES
                if many[name]
            ]
            last = f" ({plain(many[LARGE])} of them)" if many[LARGE] else ""
            none = "" if many[LARGE] else f", none {_word(LARGE, each)}"
            out.append(f"{each.name}: {', '.join(shares)}{last}{none}.")
        return " ".join(out)

    def _count(self) -> str:
        """All gradients, also those that are zero."""
        return f"{plain(self.total + self.zeros)} gradients"

    def _not_shown(self) -> str:
        """How many gradients are in no bar, and what is in a bar that is not its own."""
        broken = self.counts.get(math.inf, 0)
        words = f"; {plain(broken)} are infinite or NaN without any scale" if broken else ""
        share = tenths(self.zeros, self.total + self.zeros)
        left_out = f"{share} are exactly 0 and left out"
        if self.has_tail:
            words += "; the first bar has all smaller ones, too"
        return (left_out if self.zeros else "none is exactly 0") + words

    def alt(self) -> str:
        """How many gradients, their sizes, and the shares in all frames."""
        powers = Counter[int]()
        for edge, count in self.counts.items():
            if 0 < edge < math.inf:
                powers[_power(edge)] += count
        common = powers.most_common(1)[0][0]
        head = (
            f"Histogram of the magnitudes of {self._count()} in powers of two, from "
            f"{power_of_two(self.first)} to {power_of_two(self.last + 1)}, most of them from "
            f"{power_of_two(common)} to {power_of_two(common + 1)}; {self._not_shown()}. "
            "A loss scale moves all of them to the right."
        )
        return " ".join([head, *map(self.caption, self.scales)])


def _word(name: str, each: NumberRange) -> str:
    """A fate as a format has it."""
    return ("saturate" if each.saturates else "overflow") if name == LARGE else name


def _power(value: float) -> int:
    """The power of two that a number begins with."""
    return math.frexp(value)[1] - 1


def _scale_words(scale: float) -> str:
    """`loss scale 2⁸ = 256`."""
    return f"loss scale {power_of_two(_power(scale))} = {plain(scale)}"
