"""Bars of memory that change from frame to frame: over k micro-batches, over N ranks and stages.

Paper: Rajbhandari et al., "ZeRO" (2020), figure 1, with a slider for the number of ranks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from course_lib.plot.player import svg
from course_lib.plot.player.figure import nothing_recorded
from course_lib.plot.player.player import Frame, Player
from course_lib.plot.player.style import MEMORY_COLORS, VERMILLION, format_bytes, text_on
from course_lib.plot.player.unveil import legend
from course_lib.trace import Refusal

Bar = Mapping[str, float]  # memory class to bytes

LEFT, TOP, TALL, PITCH = 84, 62, 270, 112


def memory_player(
    frames: Mapping[str, Mapping[Any, Any]],
    budget: float | None = None,
    title: str = "memory by class",
    decimal: bool = False,
    still: str | None = None,
) -> Player:
    """A player of stacked bars, all on one scale, with the sum over each bar.

    Args:
        frames: label of a frame, in order, to its bars: {memory class: bytes} for a single bar,
            {rank: {memory class: bytes}} or {name: {memory class: bytes}} for several. Bars of one
            name stand in one place in all frames.
        budget: bytes of the memory there is; a dashed line over all bars.
        title: what is shown, for the heading.
        decimal: write GB and not GiB, as papers and price lists do.
        still: label of the frame to begin with; the first one by default.

    Raises:
        Refusal: nothing is held in any frame, a class is not one of the ledger's, or there is no
            frame `still`.
    """
    chart = Stacks({label: _bars(bars) for label, bars in frames.items()}, budget, title, decimal)
    labels = list(chart.frames)
    if still is not None and still not in labels:
        raise Refusal(f"begin with the frame {still!r}", ", ".join(labels), "it is not among them")
    return Player(
        chart.size,
        chart.background(),
        chart.places(),
        [chart.frame(label) for label in labels],
        title=title,
        alt=chart.alt(),
        still=labels.index(still) if still else 0,
    )


def _bars(value: Mapping[Any, Any]) -> dict[str, Bar]:
    """The bars of a frame by name; a single one has no name."""
    if not any(isinstance(bar, Mapping) for bar in value.values()):
        return {"": value}
    return {f"rank {name}" if isinstance(name, int) else name: bar for name, bar in value.items()}


class Stacks:
    """Where the bars are, and how high a byte is.

    Args:
        frames: label of each frame to its bars by name.
        budget: bytes of the memory there is, or None.
        title: the heading.
        decimal: whether bytes are written in powers of ten.
    """

    def __init__(
        self,
        frames: Mapping[str, Mapping[str, Bar]],
        budget: float | None,
        title: str,
        decimal: bool,
    ) -> None:
        self.decimal = decimal
        self.frames, self.budget, self.title = frames, budget, title
        every = [bar for bars in frames.values() for bar in bars.values()]
        self.classes = [name for name in MEMORY_COLORS if any(bar.get(name) for bar in every)]
        _refuse_unknown(every)
        if not self.classes:
            raise nothing_recorded(title, f"no bytes in {len(frames)} frames")
        self.names = list(dict.fromkeys(name for bars in frames.values() for name in bars))
        self.most = max(*map(_total, every), budget or 0.0, 1.0) * 1.06
        self.wide = PITCH * max(3, len(self.names))
        # The legend below may be wider than the bars.
        words = sum(36 + 7.2 * len(name) for name in self.classes)
        self.size = (LEFT + max(self.wide, words) + 30, TOP + TALL + 66)

    def y(self, count: float) -> float:
        """How far up a number of bytes is."""
        return TOP + TALL * (1 - count / self.most)

    def background(self) -> str:
        """The scale, the names of the bars and of the classes."""
        out = [svg.text(16, 24, self.title, size=15, anchor="start", bold=True)]
        least = max(1, round(self.most / 6))
        for count in range(0, int(self.most) + 1, (_ten if self.decimal else _two)(least)):
            y = self.y(count)
            out.append(svg.line([(LEFT, y), (LEFT + self.wide, y)], kind="line-edge", width=1))
            out.append(svg.text(LEFT - 8, y + 4, self.write(count), size=11, anchor="end"))
        for index, name in enumerate(self.names):
            out.append(svg.text(self.middle(index), TOP + TALL + 19, name, bold=True))
        if self.budget is not None:
            words = f"budget {self._budget_words()}"
            out.append(self._rule(LEFT, LEFT + self.wide))
            out.append(svg.text(LEFT + self.wide, 45, words, anchor="end", bold=True))
        colors = {name: MEMORY_COLORS[name] for name in self.classes}
        return "".join(out) + legend(colors, LEFT, TOP + TALL + 48)

    def middle(self, index: int) -> float:
        """The middle of a bar."""
        return LEFT + (index + 0.5) * self.wide / len(self.names)

    def places(self) -> list[svg.Point]:
        """Origins of the parts: the frame's label, the bars."""
        return [(LEFT, 45), *((self.middle(i), 0) for i in range(len(self.names)))]

    def frame(self, label: str) -> Frame:
        """The bars of one frame."""
        bars = self.frames[label]
        head = svg.text(0, 0, label, size=13.5, anchor="start", bold=True)
        stacks = [self._stack(bars[name]) if name in bars else "" for name in self.names]
        return Frame((head, *stacks), self._caption(label))

    def _stack(self, bar: Bar) -> str:
        """One bar: its classes on top of each other, the budget across it, and all numbers."""
        boxes, words, below = [], [], 0.0
        for name in self.classes:
            count, color = bar.get(name, 0), MEMORY_COLORS[name]
            tall, y = TALL * count / self.most, self.y(below + count)
            gap = 0.8 if tall > 2 else 0
            if tall > 0.2:
                boxes.append(svg.box(-40, y, 80, tall - gap, fill=color, radius=1.5))
            if tall > 15:
                place = self._clear(y + tall / 2, tall) + 4
                words.append(svg.text(0, place, self.write(count), color=text_on(color), size=11))
            below += count
        y = self.y(below)
        if self._over(below):
            boxes.append(svg.box(-40, y, 80, TOP + TALL - y, edge=2.5, kind="ink-edge", radius=1.5))
            boxes.append(self._rule(-40, 40, "#000"))
        words.append(svg.text(0, y - 6, self.write(below), size=12.5, kind="ink halo", bold=True))
        return "".join(boxes + words)

    def _clear(self, middle: float, tall: float) -> float:
        """The middle of a number, moved off the budget's line where there is room."""
        line = self.y(self.budget) if self.budget else -99.0
        return line + 12 if abs(middle - line) < 10 and tall > 46 else middle

    def _rule(self, left: float, right: float, color: str = VERMILLION) -> str:
        """The budget's dashed line; none without a budget."""
        if self.budget is None:
            return ""
        y = self.y(self.budget)
        return svg.line([(left, y), (right, y)], color=color, dashed=True)

    # --- words -----------------------------------------------------------------------------
    def _over(self, total: float) -> bool:
        return self.budget is not None and total > self.budget

    def _budget_words(self) -> str:
        """`80 GB (74.5 GiB)`: memory is sold in powers of ten and counted in powers of two."""
        count = self.budget or 0
        if count >= 1e9 and count % 1e8 == 0 and not self.decimal:
            return f"{format_bytes(count, decimal=True)} ({format_bytes(count)})"
        return self.write(count)

    def _caption(self, label: str) -> str:
        """The sums of one frame, and which of them are over the budget."""
        bars = self.frames[label]
        if list(bars) == [""]:
            return f"{label}: {self.write(_total(bars['']))} in all, {self._parts(bars[''])}." + (
                " Over the budget." if self._over(_total(bars[""])) else ""
            )
        sums = ", ".join(f"{name} {self.write(_total(bar))}" for name, bar in bars.items())
        over = [name for name, bar in bars.items() if self._over(_total(bar))]
        return f"{label}: {sums}." + (f" Over the budget: {', '.join(over)}." if over else "")

    def _parts(self, bar: Bar) -> str:
        """`parameters 2 MiB, gradients 1 MiB`."""
        return ", ".join(f"{n} {self.write(bar[n])}" for n in self.classes if bar.get(n))

    def write(self, count: float) -> str:
        """Bytes in words."""
        return format_bytes(count, self.decimal)

    def alt(self) -> str:
        """Every frame's sums, and the classes of the first and of the last frame."""
        out = [
            f"{self.title}: stacked bars of bytes by memory class, one frame each for "
            f"{', '.join(self.frames)}."
        ]
        if self.budget is not None:
            out.append(f"The budget is {self._budget_words()}.")
        out += [self._caption(label) for label in self.frames]
        for label in dict.fromkeys([*list(self.frames)[:1], *list(self.frames)[-1:]]):
            each = [
                f"{name} {self._parts(bar)}".strip() for name, bar in self.frames[label].items()
            ]
            out.append(f"By class, {label}: {'; '.join(each)}.")
        return " ".join(out)


def _refuse_unknown(bars: Iterable[Bar]) -> None:
    """A bar with a class that no colour is known for would be drawn too short."""
    unknown = {name: None for bar in bars for name in bar if name not in MEMORY_COLORS}
    if unknown:
        raise Refusal(
            f"a bar with {', '.join(map(repr, unknown))}",
            f"known classes: {', '.join(MEMORY_COLORS)}",
            "memory is compared by class, so every bar must use the ledger's names",
        )


def _total(bar: Bar) -> float:
    return sum(bar.values())


def _two(least: int) -> int:
    """The power of two from `least` on."""
    return 1 << (least - 1).bit_length()


def _ten(least: int) -> int:
    """1, 2 or 5 times a power of ten, from `least` on."""
    power = 10 ** (len(str(least)) - 1)
    return next(times * power for times in (1, 2, 5, 10) if times * power >= least)
