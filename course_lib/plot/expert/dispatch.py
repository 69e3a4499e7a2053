"""Tokens go to their experts and come home: sort, count, all-to-all, compute, and all of it back.

Paper: Lepikhin et al., "GShard" (2020), section 3, with every token drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from course_lib.plot.expert.dispatch_rows import Choices, Routes, Row
from course_lib.plot.expert.dispatch_words import TITLES, captions, describe, many, mean, short
from course_lib.plot.player import svg
from course_lib.plot.player.player import Frame, Player
from course_lib.plot.player.style import GREY, VERMILLION, rank_color, text_on

WIDE, LEFT, TOP = 800, 96, 100  # LEFT of what lanes show; TOP of the first lane
CHIP, SMALL = 24, 18  # sides of a token, at home and in a queue
TOKEN, PITCH, QUEUE = 87, 27, 19.4  # from token to token: at home, sorted, in a queue
CELL, BETWEEN = 46, 12  # of the counts: a column, and what is left free between ranks
ROW = 24  # of an expert's queue
THERE = 3  # the frame with the queues


def dispatch_steps(
    choices: Choices, experts: int, dropped: Sequence[Sequence[Sequence[int]]] = ()
) -> Player:
    """A player of one layer with expert parallelism, from the router's choices to the outputs.

    A square is a token, with its number, in the colour of the rank that it is at home on. A tag is
    an expert, in the colour of the rank that has it: pale where it was chosen, full where it has
    computed. In the counts, what stays on its rank has an outline only.

    Args:
        choices: for each rank, for each of its tokens, the numbers of the K experts it chose, best
            first, as `topk(...).indices.tolist()` gives them. Up to 4 ranks, 8 tokens a rank (or
            none), K of 1 or 2.
        experts: E, up to 8, in order over the ranks; the first ranks have one more if need be.
        dropped: for each rank the choices that were taken back since their expert was full, as
            (token, place); place 0 is a token's first choice.

    Raises:
        Refusal: choices are missing, twice, out of range or too many, or none is left.
    """
    drawing = DispatchDrawing(Routes(choices, experts, dropped))
    return Player(
        drawing.size,
        drawing.background(),
        drawing.places(),
        drawing.frames(),
        title=f"{experts} experts on {many(len(drawing.routes.ranks), 'rank')}",
        alt=describe(drawing.routes),
        still=THERE,
    )


class DispatchDrawing:
    """Where the ranks' lanes are, and what they show.

    Args:
        routes: the rows.
    """

    def __init__(self, routes: Routes) -> None:
        self.routes = routes
        self.lane = max(62, ROW * max(routes.sizes) + 14)
        self.foot = TOP + self.lane * len(routes.ranks)
        self.size = (WIDE, self.foot + 34)
        self.scale = (WIDE - LEFT - 24) / max(routes.work)  # pixels of a row that is computed

    def places(self) -> list[svg.Point]:
        """Origins of the parts: heading, what is over and under the lanes, lanes."""
        lanes = [(LEFT, TOP + self.lane * (rank + 0.5)) for rank in self.routes.ranks]
        return [(16, 24), (LEFT, TOP), (LEFT, self.foot), *lanes]

    # --- what does not change ----------------------------------------------------------------
    def background(self) -> str:
        """The legend, the ranks and which experts they have, and lines between them."""
        out = [_legend(bool(self.routes.lost))]
        for rank in self.routes.ranks:
            y, own = TOP + self.lane * rank, self.routes.of_rank(rank)
            out.append(svg.line([(16, y), (WIDE - 16, y)], kind="line-edge", width=1))
            color = rank_color(rank)
            out.append(svg.pill(46, y + self.lane / 2 - 8, f"rank {rank}", color, text_on(color)))
            words = f"has e{own[0]}" + (f"–e{own[-1]}" if len(own) > 1 else "")
            out.append(svg.text(46, y + self.lane / 2 + 19, words, kind="soft", size=11))
        out.append(svg.line([(16, self.foot), (WIDE - 16, self.foot)], kind="line-edge", width=1))
        return "".join(out)

    # --- what changes ------------------------------------------------------------------------
    def frames(self) -> list[Frame]:
        """All steps."""
        shows = (
            lambda rank: self._at_home(rank, False),
            lambda rank: self._sorted(rank, False),
            self._counted,
            self._queues,
            self._bar,
            lambda rank: self._sorted(rank, True),
            lambda rank: self._at_home(rank, True),
            self._outputs,
        )
        over = {2: (self._heads(), self._sums()), 4: (self._slowest(), self._mean())}
        out = []
        for number, (words, show) in enumerate(zip(TITLES, shows, strict=True)):
            head = svg.text(0, 0, words, size=15, anchor="start", bold=True)
            lanes = [show(rank) for rank in self.routes.ranks]
            parts = (head, *over.get(number, ("", "")), *lanes)
            out.append(Frame(parts, captions(self.routes)[number]))
        return out

    def _at_home(self, rank: int, done: bool) -> str:
        """A rank's tokens, each with the experts that it chose, or with their results."""
        out = []
        for token in range(self.routes.token_counts[rank]):
            rows = self.routes.of_token(rank, token)
            for row in rows:
                x, y = TOKEN * token + CHIP + 4, _stacked(row, rows) - 9
                gone = row in self.routes.lost
                if not (gone and done):
                    out.append(self._tag(x, y, 28, row.expert, done))
                if gone:
                    ends = [(x - 3, y + 9), (x + 31, y + 9)]
                    out.append("" if done else svg.line(ends, color=VERMILLION))
        return "".join(out) + self._tokens(rank)

    def _tokens(self, rank: int) -> str:
        """A rank's tokens at home."""
        at = [(TOKEN * token, token) for token in range(self.routes.token_counts[rank])]
        return _chips(rank, at, -CHIP / 2) if at else _nothing("no tokens of its own")

    def _sorted(self, rank: int, done: bool) -> str:
        """A rank's rows by expert."""
        out, x = [], 0.0
        for expert, rows in groupby(self.routes.sent(rank), key=lambda row: row.expert):
            at = [(x + PITCH * i, row.token) for i, row in enumerate(rows)]
            out.append(_chips(rank, at, -CHIP))
            out.append(self._tag(x, 4, PITCH * len(at) - PITCH + CHIP, expert, done))
            x += PITCH * len(at) + 10
        return "".join(out) or _nothing("nothing comes back" if done else "nothing to send")

    def _counted(self, rank: int) -> str:
        """How many rows a rank sends to each expert: outlined if it is its own, else filled."""
        color, out = rank_color(rank), []
        for expert in self.routes.experts:
            x, count = self._column(expert), self.routes.count(rank, expert)
            stays = self.routes.owner[expert] == rank
            fill = color if count and not stays else ""
            out.append(svg.box(x, -14, CELL - 6, 28, fill=fill, kind="panel"))
            if stays:
                out.append(_outline(x, -14, CELL - 6, 28, color))
            ink = text_on(color) if fill else ""
            at, kind = (x + (CELL - 6) / 2, 4.5), "ink" if count else "soft"
            out.append(svg.text(*at, str(count), size=13, color=ink, kind=kind, bold=count > 0))
        moved = self.routes.moved(rank)
        words = f"sends {moved}, keeps {len(self.routes.sent(rank)) - moved}"
        return "".join(out) + svg.text(self._edge() + 14, 4.5, words, anchor="start")

    def _queues(self, rank: int) -> str:
        """The rows of each expert that a rank has."""
        out, own = [], self.routes.of_rank(rank)
        for i, expert in enumerate(own):
            y, rows = ROW * (i - len(own) / 2) + (ROW - SMALL) / 2, self.routes.queue(expert)
            out.append(self._tag(0, y, 28, expert, True))
            for home in self.routes.ranks:
                at = [(36 + QUEUE * j, row.token) for j, row in enumerate(rows) if row.home == home]
                out.append(_chips(home, at, y, SMALL) if at else "")
            x, words = 36 + QUEUE * len(rows), f"= {len(rows)}"
            if rows:
                out.append(svg.text(x + 4, y + 13, words, size=11.5, anchor="start"))
            else:
                out.append(
                    svg.text(x, y + 13, "no token", color=VERMILLION, anchor="start", bold=True)
                )
        return "".join(out)

    def _bar(self, rank: int) -> str:
        """What a rank computes, one expert behind the other, and how long it waits."""
        out, x, work = [], 0.0, self.routes.work[rank]
        for expert in self.routes.of_rank(rank):
            wide = self.routes.loads[expert] * self.scale
            if wide:
                out.append(self._tag(x, -18, max(1, wide - 1), expert, True, tall=24))
            x += wide
        rest = (max(self.routes.work) - work) * self.scale
        if rest:
            out.append(svg.box(x, -18, rest, 24, kind="panel", radius=2))
        words = many(work, "row") if work else "no rows: waits all the time"
        return "".join(out) + svg.text(0, 22, words, size=11.5, anchor="start")

    def _outputs(self, rank: int) -> str:
        """A rank's tokens and the sums that they become."""
        out = [self._tokens(rank)]
        for token in range(self.routes.token_counts[rank]):
            rows = [row for row in self.routes.of_token(rank, token) if row in self.routes.rows]
            x = TOKEN * token
            out.append(svg.box(x, -CHIP / 2, CHIP, CHIP, kind="ink-edge", edge=2))
            for i, row in enumerate(rows):
                words = "+ " * (i > 0) + f"w·e{row.expert}"
                y = 4 + (9 * (2 * i - 1) if len(rows) > 1 else 0)
                out.append(svg.text(x + CHIP + 5, y, words, size=12, anchor="start"))
            if not rows:
                out.append(
                    svg.text(x + CHIP + 5, 4, "0", color=VERMILLION, anchor="start", bold=True)
                )
        return "".join(out)

    # --- over and under the lanes ------------------------------------------------------------
    def _heads(self) -> str:
        """The experts over the columns of the counts."""
        return "".join(
            self._tag(self._column(expert) + 4, -24, CELL - 14, expert, True)
            for expert in self.routes.experts
        )

    def _sums(self) -> str:
        """How many rows come to each expert, under the columns."""
        sums = "".join(
            svg.text(self._column(expert) + (CELL - 6) / 2, 21, str(load), size=13, bold=True)
            for expert, load in enumerate(self.routes.loads)
        )
        words = f"{self.routes.travelling} over the wire"
        total = svg.text(self._edge() + 14, 21, words, anchor="start", bold=True)
        return svg.text(-50, 21, "come to it", kind="soft", size=11) + sums + total

    def _slowest(self) -> str:
        """What the slowest rank has, at the end of its bar."""
        words = f"slowest: {many(max(self.routes.work), 'row')} ↓"
        return svg.text(WIDE - LEFT - 24, -8, words, anchor="end", bold=True)

    def _mean(self) -> str:
        """A line at the mean, through all lanes."""
        even = mean(self.routes.work)
        x, high = even * self.scale, self.foot - TOP
        words = svg.text(x, 21, f"mean: {short(even)}", anchor="end", bold=True)
        return svg.line([(x, -high + 4), (x, 6)], width=1.5, dashed=True) + words

    def _column(self, expert: int) -> float:
        """Left edge of an expert's column of the counts."""
        return CELL * expert + BETWEEN * self.routes.owner[expert]

    def _edge(self) -> float:
        """Right edge of the counts."""
        return self._column(self.routes.experts[-1]) + CELL

    def _tag(
        self, x: float, y: float, wide: float, expert: int, full: bool, tall: float = SMALL
    ) -> str:
        """An expert's name, on the colour of its rank or beside it, where there is room."""
        return _tag(x, y, wide, f"e{expert}", rank_color(self.routes.owner[expert]), full, tall)


# --- marks ---------------------------------------------------------------------------------------
def _chips(home: int, tokens: Sequence[tuple[float, int]], y: float, side: int = CHIP) -> str:
    """Tokens of one rank, as (x, number), in one path: a third as long as a box for each."""
    color, foot = rank_color(home), svg.number(y + side / 2 + 4)
    squares = "".join(f"M{svg.number(x)} {svg.number(y)}h{side}v{side}h-{side}z" for x, _ in tokens)
    numbers = "".join(
        f'<text x="{svg.number(x + side / 2)}" y="{foot}">{token}</text>' for x, token in tokens
    )
    return (
        f'<path d="{squares}" fill="{color}"/><g fill="{text_on(color)}" font-weight="600" '
        f'font-size="{side // 2}" text-anchor="middle">{numbers}</g>'
    )


def _tag(
    x: float, y: float, wide: float, words: str, color: str, full: bool, tall: float = SMALL
) -> str:
    """A name on a colour, or on a pale plate with a bar of the colour."""
    if full:
        out = svg.box(x, y, wide, tall, fill=color, radius=3)
    else:
        plate = svg.box(x, y, wide, tall, kind="panel", radius=3)
        out = plate + svg.box(x, y, 5, tall, fill=color, radius=2)
    if wide < 18:
        return out
    middle = x + wide / 2 + (0 if full else 2)
    ink = text_on(color) if full else ""
    return out + svg.text(middle, y + tall / 2 + 4, words, size=11, color=ink, bold=full)


def _outline(x: float, y: float, wide: float, tall: float, color: str) -> str:
    """The edge of a box, in a colour."""
    corners = [(x, y), (x + wide, y), (x + wide, y + tall), (x, y + tall), (x, y)]
    begin = [(x + wide / 2, y)]  # not at a corner, or that one would not be round
    return svg.line([*begin, *corners[1:], *begin], color=color, width=2.5)


def _nothing(words: str) -> str:
    """What is said where nothing can be drawn."""
    return svg.text(0, 4, words, color=VERMILLION, anchor="start", bold=True)


def _stacked(row: Row, rows: Sequence[Row]) -> float:
    """How far a choice is below the middle of its token."""
    return 10.5 * (2 * row.place - 1) if len(rows) > 1 else 0.0


def _legend(dropped: bool) -> str:
    """What the marks mean."""
    y = 53
    marks = [
        (16, 24, _chips(0, [(16, 3)], y - 13, SMALL), "token 3 of rank 0"),
        (
            160,
            36,
            _tag(160, y - 13, 28, "e1", GREY, False),
            "chosen: expert 1, in its rank's colour",
        ),
        (436, 36, _tag(436, y - 13, 28, "e1", GREY, True), "e1's queue, work or result"),
    ]
    if dropped:
        ends = [(640, y - 4), (668, y - 4)]
        marks.append((640, 36, svg.line(ends, color=VERMILLION), "dropped: no room"))
    return "".join(
        mark + svg.text(x + wide, y + 1, words, size=11.5, anchor="start")
        for x, wide, mark, words in marks
    )
