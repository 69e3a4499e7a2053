"""Which units are here, arriving, computing or gone, moment by moment: FSDP and double buffers.

Paper: Zhao et al., "PyTorch FSDP" (2023), figure 5, redrawn from a record.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from course_lib.plot.memory.units import (
    ARRIVING,
    AWAY,
    BACKWARD,
    FORWARD,
    REDUCING,
    RESIDENT,
    Moment,
    Unit,
    read_moments,
    unit_states,
)
from course_lib.plot.player import svg
from course_lib.plot.player.figure import nothing_recorded
from course_lib.plot.player.player import Frame, Player
from course_lib.plot.player.style import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILLION, text_on
from course_lib.plot.player.unveil import Columns, legend
from course_lib.trace import Timeline

Value = TypeVar("Value", int, str)

COLORS = {ARRIVING: SKY, RESIDENT: BLUE, FORWARD: GREEN, BACKWARD: ORANGE, REDUCING: PURPLE}
LEFT, TOP, ROW, NOW, WIDE, COUNT = 16, 84, 27, 158, 520, 9  # COUNT: height of one unit held


def residency_steps(timeline: Timeline, rank: int = 0, away: str = "sharded") -> Player:
    """A player through recorded gathers, frees and computations, one moment a frame.

    A row is a unit. At its left is what it is now; the columns to the right are what has been.

    Args:
        timeline: ledgers; that of `rank` has the marks `gather UNIT`, `gathered UNIT`,
            `free UNIT`, `reduce UNIT` and the spans `forward UNIT`, `backward UNIT`.
        rank: whose units.
        away: the word for a unit that is not here: `sharded`, or `on the host` for offloading.

    Raises:
        Refusal: no unit was gathered.
    """
    moments = read_moments(timeline.rank(rank))
    units = list(dict.fromkeys(m.unit for m in moments if m.kind == "gather"))
    if not units:
        raise nothing_recorded(f"the units of rank {rank} over time", "no mark `gather`")
    chart = Chart(units, moments, away)
    return Player(
        chart.size,
        chart.background(),
        chart.places(),
        [chart.frame(number) for number in range(len(chart.states))],
        title=f"units on rank {rank}",
        alt=chart.alt(rank),
        still=chart.busiest(),
    )


class Chart:
    """The states after every moment, and where they are drawn.

    Args:
        units: names, in the order of their first gather.
        moments: in order; the first frame is before all of them.
        away: the word for a unit that is not here.
    """

    def __init__(self, units: list[str], moments: list[Moment], away: str) -> None:
        self.units, self.moments, self.away = units, moments, away
        self.states = unit_states(units, moments)
        self.held = [sum(unit.place != AWAY for unit in now.values()) for now in self.states]
        self.label = max(60.0, 7.4 * max(map(len, units)) + 14)
        rows = ROW * len(units)
        self.deep = rows + 16 + COUNT * max(self.held)
        left = LEFT + self.label + NOW + 12
        self.columns = Columns(left, TOP, WIDE, self.deep, len(moments))
        self.size = (max(left + WIDE + 16, 700), TOP + self.deep + 30)

    def y(self, unit: str) -> float:
        """Upper edge of a unit's row."""
        return TOP + ROW * self.units.index(unit)

    def busiest(self) -> int:
        """The last moment at which most is going on: units held, computing, being reduced."""

        def busy(number: int) -> tuple[int, int, int, int]:
            now = self.states[number].values()
            working, reduced = sum(bool(u.work) for u in now), sum(u.reducing for u in now)
            return self.held[number], working, reduced, number

        return max(range(len(self.states)), key=busy)

    def places(self) -> list[svg.Point]:
        """Origins of the parts: heading, what each unit is now, the count, the curtain."""
        now = LEFT + self.label
        rows = [(now, self.y(unit)) for unit in self.units]
        return [(LEFT, 24), *rows, (now, TOP + ROW * len(self.units) + 16), (0, 0)]

    # --- what does not change ----------------------------------------------------------------
    def background(self) -> str:
        """Names of the units, the legend, and all columns as they are at the end."""
        reducing = any(unit.reducing for now in self.states for unit in now.values())
        colors = {state: c for state, c in COLORS.items() if reducing or state != REDUCING}
        out = [legend({self.away: ""} | colors, LEFT, 54, 6.6)]
        for unit in self.units:
            name = svg.text(LEFT + self.label - 10, self.y(unit) + 16, unit, anchor="end")
            out += [name, *self._row(unit)]
        out += self._counts()
        words = "one column a moment: order, not time"
        out.append(
            svg.text(
                self.columns.left, self.size[1] - 10, words, kind="soft", size=11, anchor="start"
            )
        )
        return "".join(out)

    def _row(self, unit: str) -> list[str]:
        """A unit's states over all moments; its gradient on the wire is a thin bar below."""
        y, columns, out = self.y(unit), self.columns, []
        middle = y + 10
        out.append(
            svg.line(
                [(columns.left, middle), (columns.left + WIDE, middle)], kind="line-edge", width=1
            )
        )
        main = [now[unit].work or now[unit].place for now in self.states]
        for first, after, state in runs(main):
            if state != AWAY:
                out.append(columns.bar(first, after, y + 2, 16, fill=COLORS[state]))
            if state in (FORWARD, BACKWARD) and (after - first) * columns.step > 9:
                x = (columns.x(first) + columns.x(after)) / 2
                out.append(svg.text(x, y + 14, state[10].upper(), size=11, color="#000", bold=True))
        sent = [REDUCING if now[unit].reducing else "" for now in self.states]
        out += [
            columns.bar(first, after, y + 19, 5, fill=PURPLE)
            for first, after, state in runs(sent)
            if state
        ]
        return out

    def _counts(self) -> list[str]:
        """How many units were held after each moment, as columns."""
        foot = TOP + self.deep
        return [
            self.columns.bar(first, after, foot - COUNT * count, COUNT * count, fill=GREY)
            for first, after, count in runs(self.held)
            if count
        ]

    # --- what changes ------------------------------------------------------------------------
    def frame(self, number: int) -> Frame:
        """The state after a moment; 0 is before the first."""
        now = self.states[number]
        words = "before the first moment"
        if number:
            words = f"moment {number} of {len(self.moments)} · {self._said(number)}"
        head = svg.text(0, 0, words, size=15, anchor="start", bold=True)
        rows = [self._now(now[unit]) for unit in self.units]
        line = self._most(number) + self.columns.curtain(number)
        return Frame((head, *rows, self._count(number), line), self._caption(number))

    def _now(self, unit: Unit) -> str:
        """What a unit is now, in words on its colour."""
        color = COLORS.get(unit.state, "")
        ink = text_on(color) if color else ""
        plate = svg.box(0, 1, NOW, ROW - 4, fill=color, kind="" if color else "panel")
        return plate + svg.text(
            NOW / 2, 16, unit.state or self.away, color=ink, kind="soft", size=11.5
        )

    def _count(self, number: int) -> str:
        """`units resident: 2`, how many of them are still arriving, and the most so far."""
        arriving = sum(unit.place == ARRIVING for unit in self.states[number].values())
        held, most = self.held[number], max(self.held[: number + 1])
        some = f" ({arriving} arriving)" if arriving else ""
        words = svg.text(NOW, 9, f"units resident: {held}{some}", anchor="end", bold=True)
        return words + svg.text(NOW, 26, f"most so far: {most}", size=11.5, anchor="end")

    def _most(self, number: int) -> str:
        """A line at the most units held so far."""
        y = TOP + self.deep - COUNT * max(self.held[: number + 1])
        left = self.columns.left
        return svg.line([(left, y), (left + WIDE, y)], color=VERMILLION, width=1.5, dashed=True)

    # --- words -------------------------------------------------------------------------------
    def _caption(self, number: int) -> str:
        """What happens, what computes meanwhile, and how many units are held."""
        held, most = self.held[number], max(self.held[: number + 1])
        count = f"{held} resident or arriving, at most {most} so far."
        if number == 0:
            return f"Before the first moment: {len(self.units)} units, {count}"
        moment = self.moments[number - 1]
        busy = [
            f"{name} is {unit.work}"
            for name, unit in self.states[number].items()
            if unit.work and name != moment.unit
        ]
        while_ = f", while {' and '.join(busy)}" if busy else ""
        return f"Moment {number}: {self._said(number)}{while_}. Units: {count}"

    def _said(self, number: int) -> str:
        moment = self.moments[number - 1]
        return said(moment, self.states[number - 1][moment.unit])

    def alt(self, rank: int) -> str:
        """The whole story in a few sentences."""
        most = max(self.held)
        peak = self.states[self.held.index(most)]
        here = ", ".join(name for name, unit in peak.items() if unit.place != AWAY)
        return (
            f"{len(self.units)} units on rank {rank} in {len(self.moments)} moments: "
            f"{', '.join(self.units)}. At most {most} were resident or arriving at once, first "
            f"{here or 'none'}. {_overlapped(self.moments, self.states)} At the end "
            f"{self.held[-1]} are resident. In order: "
            + "; ".join(f"{m.kind} {m.unit}" for m in self.moments if m.kind != "end")
            + "."
        )


def runs(values: Sequence[Value]) -> Iterator[tuple[int, int, Value]]:
    """Stretches of equal values, as (first moment, one after the last, value); 0 is left out."""
    first = 1
    for moment in range(2, len(values) + 1):
        if moment == len(values) or values[moment] != values[first]:
            yield first, moment, values[first]
            first = moment


def said(moment: Moment, before: Unit) -> str:
    """A moment in words."""
    unit = moment.unit
    words = {
        "gather": f"{unit} begins to arrive",
        "gathered": f"{unit} has arrived",
        "free": f"{unit} is freed",
        "reduce": f"the gradient of {unit} begins to be reduced",
        "reduced": f"the gradient of {unit} has been reduced",
        "forward": f"{unit} begins its forward",
        "backward": f"{unit} begins its backward",
        "end": f"{unit} ends its {'backward' if before.work == BACKWARD else 'forward'}",
    }
    return words[moment.kind]


def _overlapped(moments: Sequence[Moment], states: Sequence[dict[str, Unit]]) -> str:
    """How many gathers began while another unit computed."""
    gathers = [i for i, moment in enumerate(moments, 1) if moment.kind == "gather"]
    beside = sum(any(unit.work for unit in states[i].values()) for i in gathers)
    return f"{beside} of {len(gathers)} gathers began while a unit computed."
