"""The flight recorder: the last calls of every rank side by side, up to where they part."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from course_lib.plot.player import svg
from course_lib.plot.player.figure import nothing_recorded
from course_lib.plot.player.player import Frame, Player
from course_lib.plot.player.style import (
    BLUE,
    GREEN,
    ORANGE,
    PURPLE,
    SKY,
    VERMILLION,
    YELLOW,
    rank_color,
    text_on,
)
from course_lib.trace import FlightLog, Record, find_desync, program_order
from course_lib.trace.hangs.flight import Channel

LEFT, TOP, CELL, ROW, FOOT = 86.0, 76.0, 112.0, 50.0, 30.0
COLORS = (BLUE, ORANGE, GREEN, SKY, PURPLE, YELLOW, VERMILLION)
SHOWN = 7  # columns

Place = tuple[Channel, int]


def flight_steps(logs: Iterable[FlightLog]) -> Player:
    """A player through the last calls: a column is one call, by its channel and number.

    A full box is a call that a rank has finished, an outlined one a call that it stands in, a
    dashed one a call that it has not made. The last frame says what `find_desync` finds.

    Args:
        logs: one a rank.

    Raises:
        Refusal: no calls were recorded.
    """
    drawing = FlightDrawing(sorted(logs, key=lambda log: log.rank))
    frames = [drawing.frame(count) for count in range(1, len(drawing.columns) + 1)]
    return Player(
        drawing.size,
        drawing.background(),
        [(0, 0)],
        [*frames, drawing.last()],
        title=f"the last calls of {len(drawing.logs)} ranks",
        alt=drawing.verdict(),
        still=len(frames),
    )


class FlightDrawing:
    """Where ranks and calls are.

    Args:
        logs: in rank order.
    """

    def __init__(self, logs: Sequence[FlightLog]) -> None:
        self.logs = logs
        self.made: dict[Place, dict[int, Record]] = {}
        for record in (record for log in logs for record in log.records):
            self.made.setdefault(_place(record), {})[record.rank] = record
        if not self.made:
            raise nothing_recorded("flight logs", "no call of any rank")
        order = program_order([list(map(_place, log.records)) for log in logs])
        self.columns = order[-SHOWN:]
        ops = dict.fromkeys(record.op for at in order for record in self.made[at].values())
        self.color = {op: COLORS[number % len(COLORS)] for number, op in enumerate(ops)}
        self.finding = find_desync(logs)
        self.size = (LEFT + CELL * len(self.columns) + 16, TOP + ROW * len(logs) + FOOT)

    def background(self) -> str:
        """The ranks, and how to read the boxes."""
        out = [
            svg.text(
                16,
                22,
                "A column is a call, by group and number",
                anchor="start",
                bold=True,
                size=13,
            )
        ]
        for place, log in enumerate(self.logs):
            color = rank_color(log.rank)
            out.append(
                svg.pill(48, TOP + ROW * place + 20, f"rank {log.rank}", color, text_on(color))
            )
        words = "filled: finished · outlined: still in the call · dashed: not called"
        y = TOP + ROW * len(self.logs) + 16
        return "".join([*out, svg.text(LEFT, y, words, anchor="start", kind="soft", size=11)])

    def frame(self, count: int) -> Frame:
        """The first `count` columns."""
        place = self.columns[count - 1]
        made = self.made[place]
        missing = [
            log.rank for log in self.logs if log.rank in place[0].ends and log.rank not in made
        ]
        said = "; ".join(
            f"{_ranks(sorted(r for r, one in made.items() if _call(one) == call))}: {call}"
            for call in dict.fromkeys(map(_call, made.values()))
        )
        if missing:
            said += f"; {_ranks(missing)}: never called"
        return Frame(("".join(map(self._column, range(count))),), f"{self._name(place)}. {said}.")

    def last(self) -> Frame:
        """All columns, and the verdict."""
        columns = "".join(map(self._column, range(len(self.columns))))
        found = self.finding
        if found is not None and (found.channel, found.seq) in self.columns:
            x = LEFT + CELL * self.columns.index((found.channel, found.seq)) - 3
            tall = ROW * len(self.logs) + 36
            columns += (
                f'<rect x="{x:.0f}" y="{TOP - 38:.0f}" width="{CELL - 2:.0f}" '
                f'height="{tall:.0f}" rx="6" fill="none" stroke="{VERMILLION}" stroke-width="3"/>'
            )
        return Frame((columns,), self.verdict())

    def verdict(self) -> str:
        """What the comparison finds."""
        return "All ranks made the same calls." if self.finding is None else self.finding.text

    def _column(self, number: int) -> str:
        place, x = self.columns[number], LEFT + CELL * number
        made = self.made[place]
        middle, lines = x + (CELL - 8) / 2, self._name(place).split(", ")
        out = [
            svg.text(middle, TOP - 24 + 14 * line, words, kind="soft", size=11)
            for line, words in enumerate(lines)
        ]
        for row, log in enumerate(self.logs):
            y = TOP + ROW * row
            record = made.get(log.rank)
            if record is not None:
                out.append(self._box(record, x, y))
            elif log.rank in place[0].ends:
                corners = [(x, y), (x + CELL - 8, y), (x + CELL - 8, y + 40), (x, y + 40), (x, y)]
                out.append(svg.line(corners, kind="line-edge", width=1.5, dashed=True))
        return "".join(out)

    def _box(self, record: Record, x: float, y: float) -> str:
        color, wide = self.color[record.op], CELL - 8
        what = f"{list(record.shape)}" if record.shape else ""
        if record.state == "finished":
            back, ink = svg.box(x, y, wide, 40, fill=color), text_on(color)
        else:
            back = svg.box(x, y, wide, 40, fill=color) + svg.box(
                x + 4, y + 4, wide - 8, 32, kind="paper", radius=2
            )
            ink = ""
        return (
            back
            + svg.text(x + wide / 2, y + 18, record.op, size=12, bold=True, color=ink)
            + svg.text(x + wide / 2, y + 32, what, size=10, color=ink)
        )

    def _name(self, place: Place) -> str:
        channel, seq = place
        if channel.sender >= 0:
            return f"{channel.sender} → {channel.receiver}, message {seq}"
        axis = next(iter(self.made[place].values())).axis
        members = ",".join(map(str, channel.group))
        return f"{axis or 'group'} [{members}], call {seq}"


def _place(record: Record) -> Place:
    return record.channel, record.seq


def _call(record: Record) -> str:
    shape = f" of {list(record.shape)}" if record.shape else ""
    waits = "" if record.state == "finished" else ", and is still in it"
    return f"{record.op}{shape}{waits}"


def _ranks(ranks: Sequence[int]) -> str:
    word = "rank" if len(ranks) == 1 else "ranks"
    return f"{word} {', '.join(map(str, ranks))}"
