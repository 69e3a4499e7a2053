"""The grid of a pipeline: a row for each rank, a box for each action, as long as the action took.

Paper: Huang et al., "GPipe" (2019), figure 2; Qi et al., "Zero Bubble" (2023), figure 3.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass

from course_lib.plot.player import svg
from course_lib.plot.player.style import GREEN, GREY, ORANGE, PURPLE, SKY, text_on
from course_lib.plot.player.unveil import legend
from course_lib.plot.schedule.measured import Measured
from course_lib.schedule import Simulation, Slot

COLORS = {"F": GREEN, "B": ORANGE, "I": SKY, "W": PURPLE}
WORDS = {"F": "F forward", "B": "B backward", "I": "I backward: input", "W": "W backward: weights"}
ROW = 34.0
# A box begins this far below its row's upper edge and a forward ends as far above the lower one:
# where boxes are too narrow for letters, and without colours, kinds are told apart by this.
DROP = {"F": 0.0, "B": 4.0, "I": 4.0, "W": 8.0}
DIGIT, LETTER = 6.3, {"W": 9.6}  # widths at 11 pixels; other letters are narrow


@dataclass(frozen=True)
class Clock:
    """What times are written in.

    Attributes:
        unit: `tF` for a simulation, `ms` for a run.
        scale: units in 1 of the slots' times.
    """

    unit: str
    scale: float

    @staticmethod
    def of(simulation: Simulation) -> Clock:
        """The clock of a simulation or of a run."""
        return Clock("ms", 1e3) if isinstance(simulation, Measured) else Clock("tF", 1.0)

    def write(self, time: float) -> str:
        """`7.25 tF`, `12.3 ms`."""
        return f"{short(time * self.scale)} {self.unit}"


@dataclass(frozen=True)
class Grid:
    """Where rows and boxes are.

    Attributes:
        simulation: what is drawn; a `Measured` run as well.
        left: left edge, the time of the first action.
        top: upper edge of the first row.
        width: pixels of `until`.
        until: the time at the right edge: the makespan, or more to compare several.
        gap: pixels between two rows.
    """

    simulation: Simulation
    left: float
    top: float
    width: float
    until: float
    gap: float = 6.0

    @property
    def foot(self) -> float:
        """Lower edge of the last row."""
        return self.top + self.simulation.schedule.ranks * (ROW + self.gap) - self.gap

    def x(self, time: float) -> float:
        """Where a time is."""
        return self.left + self.width * time / self.until

    def y(self, rank: int) -> float:
        """Upper edge of a rank's row."""
        return self.top + rank * (ROW + self.gap)

    def box(self, rank: int, slot: Slot) -> tuple[float, float, float, float]:
        """Left, upper edge, width and height of an action's box."""
        drop, left = DROP[slot.action.kind], self.x(slot.begin)
        tall = ROW - (drop or DROP["B"])
        # A tenth more or less of the gap between boxes is not seen, a box that is left out is.
        return left, self.y(rank) + drop, max(0.4, self.x(slot.end) - left - 0.7), tall

    def outline(self, rank: int, slot: Slot) -> str:
        """The box of an action as a piece of a path."""
        x, y, wide, tall = map(svg.number, self.box(rank, slot))
        return f"M{x} {y}h{wide}v{tall}h-{wide}z"

    def draw(self) -> str:
        """Rows, boxes, their words and the axis."""
        return "".join((*map(self._row, range(self.simulation.schedule.ranks)), self._axis()))

    def _row(self, rank: int) -> str:
        """One rank: waiting is the bare row between the boxes."""
        y = self.y(rank)
        # Colours are kinds of action here, so a rank's own would say something that is not so.
        out = [
            svg.pill(self.left - 40, y + ROW / 2, f"rank {rank}", GREY, text_on(GREY)),
            svg.box(
                self.left,
                y,
                self.x(self.simulation.makespan) - self.left,
                ROW,
                kind="panel",
                radius=0,
            ),
        ]
        stages = self.simulation.schedule.stages_of(rank)
        paths: defaultdict[str, str] = defaultdict(str)
        words = []
        for slot in self.simulation.slots[rank]:
            chunk = stages.index(slot.action.stage)
            paths[tint(COLORS[slot.action.kind], chunk, len(stages))] += self.outline(rank, slot)
            words.append(self._words(rank, slot))
        out += [f'<path fill="{color}" d="{path}"/>' for color, path in paths.items()]
        if any(words):
            out.append(
                '<text font-size="11" font-weight="600" text-anchor="middle" '
                f'fill="#000">{"".join(words)}</text>'
            )
        return "".join(out)

    def _words(self, rank: int, slot: Slot) -> str:
        """The letter of an action above its micro-batch, if the box is wide enough for both."""
        x, y, wide, _ = self.box(rank, slot)
        micro = str(slot.action.micro)
        if wide < 2 + max(LETTER.get(slot.action.kind, 7.5), DIGIT * len(micro)):
            return ""
        middle = svg.number(x + wide / 2)
        return "".join(
            f'<tspan x="{middle}" y="{svg.number(y + below)}">{word}</tspan>'
            for below, word in ((12.5, slot.action.kind), (24, micro))
        )

    def _axis(self) -> str:
        """Times below the last row."""
        clock, y, out = Clock.of(self.simulation), self.foot, []
        step = nice_step(self.until * clock.scale * 44 / self.width)
        last = math.floor(self.until * clock.scale / step + 1e-6)
        for tick in range(last + 1):
            x = self.x(tick * step / clock.scale)
            words = short(tick * step) + (f" {clock.unit}" if tick == last else "")
            out.append(svg.line([(x, y + 2), (x, y + 6)], kind="line-edge", width=1))
            out.append(svg.text(x, y + 18, words, kind="soft", size=11))
        return "".join(out)


def tint(color: str, chunk: int, chunks: int) -> str:
    """The colour of a rank's chunk: the first as it is, the later ones lighter."""
    white = 0.62 * chunk / max(2, chunks - 1) if chunks > 2 else 0.5 * chunk
    parts = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(part + white * (255 - part)):02x}" for part in parts)


def grid_legend(simulations: tuple[Simulation, ...], x: float, y: float) -> str:
    """The kinds of action that are there, waiting, and what lighter boxes are."""
    schedules = [simulation.schedule for simulation in simulations]
    kinds = {action.kind for s in schedules for line in s.actions for action in line}
    entries = {WORDS[kind]: color for kind, color in COLORS.items() if kind in kinds}
    out = legend(entries | {"waiting": ""}, x, y, 5.8)
    if any(s.stages > s.ranks for s in schedules):
        x += sum(36 + 5.8 * len(words) for words in (*entries, "waiting"))
        out += svg.text(x, y + 1, "lighter: a later chunk of the rank", size=11.5, anchor="start")
    return out


def short(value: float) -> str:
    """`33`, `7.25`, `0.333`: three decimals at most, or three digits."""
    return f"{value:.4g}" if abs(value) < 10 else f"{value:.1f}".removesuffix(".0")


def nice_step(least: float) -> float:
    """1, 2 or 5 times a power of ten, from `least` on."""
    power = 1e-6
    while 10 * power <= least:
        power *= 10
    return next(round(k * power, 9) for k in (1, 2, 5, 10) if k * power >= least * (1 - 1e-9))
