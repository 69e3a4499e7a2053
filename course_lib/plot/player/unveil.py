"""A chart over the order of moments that a stepper unveils: one column a moment, none too early."""

from __future__ import annotations

from dataclasses import dataclass

from course_lib.plot.player import svg


@dataclass(frozen=True)
class Columns:
    """Where the columns of such a chart are. Moments count from 1; frame 0 shows none of them.

    Attributes:
        left: left edge, in pixels.
        top: upper edge.
        width: of all columns.
        height: of all rows.
        count: how many moments there are.
    """

    left: float
    top: float
    width: float
    height: float
    count: int

    @property
    def step(self) -> float:
        """Width of a column."""
        return self.width / max(1, self.count)

    def x(self, moment: int) -> float:
        """Left edge of a moment's column."""
        return self.left + (moment - 1) * self.step

    def bar(
        self, first: int, after: int, y: float, tall: float, *, fill: str = "", kind: str = ""
    ) -> str:
        """A bar from the column of moment `first` up to that of moment `after`, left out itself."""
        width = max(0.5, (after - first) * self.step - 0.6)
        return svg.box(self.x(first), y, width, tall, fill=fill, kind=kind, radius=min(2, tall / 2))

    def curtain(self, moment: int) -> str:
        """What hides all columns after this moment, and the line of now at its edge."""
        edge, foot = self.x(moment + 1), self.top + self.height
        hidden = self.left + self.width - edge
        veil = svg.box(edge, self.top - 1, hidden + 1, self.height + 2, kind="paper", radius=0)
        now = svg.line([(edge, self.top - 4), (edge, foot + 4)], width=1.5)
        return (veil if hidden > 0.5 else "") + now


def legend(entries: dict[str, str], x: float, y: float, pitch: float = 7.2) -> str:
    """Swatches and their words in one row; an entry without a colour has the panel's."""
    out = []
    for words, color in entries.items():
        out.append(svg.box(x, y - 10, 13, 13, fill=color, kind="" if color else "panel", radius=3))
        out.append(svg.text(x + 18, y + 1, words, size=11.5, anchor="start"))
        x += 36 + pitch * len(words)
    return "".join(out)
