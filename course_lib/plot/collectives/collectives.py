"""A collective, step by step: which parts each chunk of each rank holds, and the messages between.

Paper: Thakur, Rabenseifner, Gropp (2005), whose figures for ring and tree are redrawn from records.
"""

from __future__ import annotations

from course_lib.plot.collectives.captions import beginning, caption, ending, phase
from course_lib.plot.collectives.messages import Message
from course_lib.plot.collectives.replay import SUMS, Held, Replay, Slot, State, replay
from course_lib.plot.player import svg
from course_lib.plot.player.player import Frame, Player
from course_lib.plot.player.style import VERMILLION, format_bytes, rank_color, text_on
from course_lib.trace import Timeline
from course_lib.trace.timeline import formula_sent

LEFT, TOP, CELL_HEIGHT, TICK = 84, 72, 28, 22
MANY = 5  # with more ranks than this, columns are narrow


def collective_steps(timeline: Timeline, op: str = "all_reduce", call: int = -1) -> Player:
    """A player through the steps of one recorded collective.

    A column is a rank, a row a chunk of the tensor. A cell shows whose parts are in it, each in its
    rank's colour. Everything is taken from the messages' records (see `replay`), so a wrong
    algorithm is shown wrong.

    Args:
        timeline: ledgers of all ranks; the collective's messages carry `step` and `chunk`.
        op: `all_reduce`, `reduce_scatter`, `all_gather`, `broadcast` or `reduce`.
        call: which of the recorded calls of `op`; the last by default.

    Raises:
        Refusal: the records hold no such call, or no steps.
    """
    story = replay(timeline, op, call)
    grid = Grid(story)
    frames = [grid.frame(index) for index in range(len(story.states))]
    frames.append(Frame(grid.parts(story.states[-1], (), "after the last step"), ending(story)))
    title = f"{story.label} on {len(story.group)} ranks"
    alt = f"{title}, step by step, from recorded messages. " + " ".join(
        frame.caption for frame in frames[1:]
    )
    return Player(
        grid.size,
        grid.background(),
        grid.places(),
        frames,
        title=title,
        alt=alt,
        still=min(len(frames) - 1, (len(frames) + 1) // 2),
    )


class Grid:
    """Where things are in the picture of a collective, and how each state is drawn.

    Args:
        story: the collective.
    """

    def __init__(self, story: Replay) -> None:
        self.story = story
        many = len(story.group) > MANY
        self.gap = 26 if many else 62
        # Sums show all parts side by side; in the other collectives a chunk has one source.
        places, self.part = (len(story.group), 11 if many else 26) if story.op in SUMS else (1, 52)
        self.cell = self.part * places + TICK
        self.lanes = self._lanes()
        self.rows = self._rows()
        foot = self.rows[story.chunks[-1]] + CELL_HEIGHT + 14 + 17 * self.lanes[story.chunks[-1]]
        self.foot = foot + 16
        self.size = (self.column(len(story.group)) - self.gap + 44, self.foot + 44)
        self.most = max(1, *story.states[-1].sent.values(), *self._formula().values())

    def column(self, index: int) -> float:
        """Left edge of the column of the rank with this index."""
        return LEFT + index * (self.cell + self.gap)

    def _lanes(self) -> dict[int, int]:
        """How many messages must be led below each row, at most, because they skip columns."""
        return {
            chunk: max(
                max(
                    (lane + 1 for m, lane in self._led_around(state.messages) if m.chunk == chunk),
                    default=0,
                )
                for state in self.story.states
            )
            for chunk in self.story.chunks
        }

    def _led_around(self, messages: tuple[Message, ...]) -> list[tuple[Message, int]]:
        """The messages that skip columns, each with the first lane that is free on its way."""
        taken: list[tuple[int, int, int, int]] = []  # (chunk, lane, from column, to column)
        out = []
        for message in messages:
            first, last = sorted((self._index(message.source), self._index(message.to)))
            if last - first > 1:
                lane = 0
                while any(
                    (c, used) == (message.chunk, lane) and a <= last and first <= b
                    for c, used, a, b in taken
                ):
                    lane += 1
                taken.append((message.chunk, lane, first, last))
                out.append((message, lane))
        return out

    def _rows(self) -> dict[int, float]:
        """Upper edge of each chunk's row."""
        rows, y = {}, float(TOP)
        for chunk in self.story.chunks:
            rows[chunk] = y
            y += CELL_HEIGHT + 14 + 17 * self.lanes[chunk]
        return rows

    def _beside(self, message: Message) -> bool:
        """Whether it goes to a neighbouring column."""
        return abs(self._index(message.to) - self._index(message.source)) == 1

    def _index(self, rank: int) -> int:
        return self.story.group.index(rank)

    def _formula(self) -> dict[int, int]:
        """Bytes that each rank sends by the formula, for the ranks that booked the call."""
        return {rank: formula_sent(event) for rank, event in self.story.events.items()}

    # --- what does not change ----------------------------------------------------------------
    def background(self) -> str:
        """Ranks over the columns, chunks beside the rows, and the scale of the bytes below."""
        out = []
        for index, rank in enumerate(self.story.group):
            color, middle = rank_color(rank), self.column(index) + self.cell / 2
            out.append(svg.pill(middle, TOP - 18, f"rank {rank}", color, text_on(color), 62))
        sizes = {m.chunk: m.count for state in self.story.states for m in state.messages}
        for chunk, y in self.rows.items():
            name = "tensor" if chunk < 0 else f"chunk {chunk}"
            out.append(svg.text(LEFT - 12, y + 12, name, anchor="end"))
            words = format_bytes(sizes[chunk]) if chunk in sizes else ""
            out.append(svg.text(LEFT - 12, y + 25, words, kind="soft", size=10.5, anchor="end"))
        out.append(svg.text(LEFT - 12, self.foot + 9, "sent so far", anchor="end"))
        if self.story.events:
            out.append(
                svg.text(
                    LEFT - 12, self.foot + 27, "▏formula", kind="soft", size=10.5, anchor="end"
                )
            )
        return "".join(out)

    def places(self) -> list[svg.Point]:
        """Origins of the parts: the heading, the cells, the bytes of each rank, the arrows."""
        columns = [self.column(index) for index in range(len(self.story.group))]
        cells = [(x, y) for x in columns for y in self.rows.values()]
        return [(LEFT, 24), *cells, *((x, self.foot) for x in columns), (0, 0)]

    # --- what changes ------------------------------------------------------------------------
    def frame(self, index: int) -> Frame:
        """The state after step `index`; 0 is before the first."""
        state, steps = self.story.states[index], len(self.story.states) - 1
        if index == 0:
            return Frame(self.parts(state, (), "before the first step"), beginning(self.story))
        heading = f"step {index} of {steps} · {phase(self.story, state)}"
        return Frame(self.parts(state, state.messages, heading), caption(self.story, index))

    def parts(self, state: State, messages: tuple[Message, ...], heading: str) -> tuple[str, ...]:
        """Everything that changes, in the order of `places`."""
        done = self.story.complete(state)
        fresh = {(m.to, m.chunk) for m in messages if m.arrived}
        slots: list[Slot] = [(r, c) for r in self.story.group for c in self.story.chunks]
        cells = [self._cell(state.held[slot], slot in done, slot in fresh) for slot in slots]
        sums = [self._sum(rank, state.sent[rank]) for rank in self.story.group]
        title = svg.text(0, 0, heading, size=15, anchor="start", bold=True)
        return (title, *cells, *sums, self._arrows(messages))

    def _cell(self, held: Held, done: bool, fresh: bool) -> str:
        """A chunk of a rank: the parts in it, a tick if it is complete, an edge if it just came."""
        out = [svg.box(0, 0, self.cell, CELL_HEIGHT, kind="panel")]
        # Cells make up most of a film's bytes, so their parts are written as short as SVG allows.
        out.append(f'<g font-size="{9 if self.part < 20 else 11}" text-anchor="middle">')
        out += [
            self._piece(rank, times, index if self.story.op in SUMS else 0)
            for index, (rank, times) in enumerate(zip(self.story.group, held, strict=True))
            if times
        ]
        out.append("</g>")
        if done:
            x = self.cell - 15
            out.append(svg.line([(x, 14), (x + 4, 18.5), (x + 10, 9)], width=2.2))
        if fresh:
            out.append(svg.box(0, 0, self.cell, CELL_HEIGHT, kind="ink-edge", edge=2))
        return "".join(out)

    def _piece(self, rank: int, times: int, place: int) -> str:
        """One rank's part of a chunk, with the rank's number; `×2` if it is counted twice."""
        color, x, width = rank_color(rank), 3 + place * self.part, self.part - 1
        words = str(rank) if times == 1 else f"{rank}×{times}"
        return (
            f'<path d="M{x} 3h{width}v{CELL_HEIGHT - 6}h-{width}z" fill="{color}"/><text '
            f'x="{svg.number(x + width / 2)}" y="18" fill="{text_on(color)}">{words}</text>'
        )

    def _sum(self, rank: int, count: int) -> str:
        """Bytes sent so far, as a bar; a mark shows the formula's bytes."""
        scale = self.cell / self.most
        out = [svg.box(0, 0, self.cell, 10, kind="panel", radius=2)]
        if count:
            out.append(svg.box(0, 0, count * scale, 10, fill=rank_color(rank), radius=2))
        if rank in self.story.events:
            x = min(self._formula()[rank] * scale, self.cell - 1)
            out.append(svg.line([(x, -4), (x, 14)]))
        out.append(svg.text(0, 27, format_bytes(count), size=12, anchor="start"))
        return "".join(out)

    def _arrows(self, messages: tuple[Message, ...]) -> str:
        """The messages of a step: straight to neighbours, else around below the row."""
        straight = [self._straight(m) for m in messages if self._beside(m)]
        led = self._led_around(messages)
        deep = {(m.chunk, lane) for m, lane in led}
        around = [self._around(m, lane, (m.chunk, lane + 1) in deep) for m, lane in led]
        return "".join(straight + around)

    def _straight(self, message: Message) -> str:
        """A message to the next column, through the gap between."""
        here, there = self._index(message.source), self._index(message.to)
        right = there > here
        y = self.rows[message.chunk] + CELL_HEIGHT / 2 + (4 if right else 12)
        start = self.column(here) + (self.cell + 3 if right else -3)
        stop = self.column(there) + (-3 if right else self.cell + 3)
        words = self._words((start + stop) / 2, y - 6 if right else y + 14, message)
        return self._line([(start, y), (stop, y)], message) + words

    def _around(self, message: Message, lane: int, deep: bool) -> str:
        """A message that skips columns: out below its cell, along a lane, in from below.

        Args:
            message: it.
            lane: which of the lanes below its row.
            deep: whether another message is led along the lane below.
        """
        here, there = self._index(message.source), self._index(message.to)
        bottom = self.rows[message.chunk] + CELL_HEIGHT
        y = bottom + 17 + 17 * lane
        start, stop = self.column(here) + self.cell * 0.62, self.column(there) + self.cell * 0.38
        points = [(start, bottom + 2), (start, y), (stop, y), (stop, bottom + 2)]
        middle = (here + there) / 2
        # A deeper lane's arrow may come up in the middle, where a column is: words stand beside it.
        aside = (self.cell + self.gap) / 2 if deep and middle == int(middle) else 0
        words = self._words((start + stop) / 2 - aside, y + 4, message)
        return self._line(points, message) + words

    def _line(self, points: list[svg.Point], message: Message) -> str:
        lost = not message.arrived
        return svg.arrow(points, color=VERMILLION if lost else "", dashed=lost)

    def _words(self, x: float, y: float, message: Message) -> str:
        """Its bytes, where there is room for them; and if it never arrived, that."""
        if message.arrived and len(self.story.group) > MANY:
            return ""
        words = format_bytes(message.count) if message.arrived else "never received"
        return svg.text(x, y, words, kind="ink halo", size=11)
