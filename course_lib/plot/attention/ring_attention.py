"""Ring attention, hop by hop: the causal mask fills up, and every rank's share of it is counted.

Paper: Liu et al., "Ring Attention" (2023), figure 2; Brandon et al., "Striped Attention" (2023),
figure 2, for the idle ranks; both redrawn from a record.
"""

from __future__ import annotations

from course_lib.plot.attention.tiles import Extent, Tile, Tiles, read_tiles
from course_lib.plot.player import svg
from course_lib.plot.player.player import Frame, Player
from course_lib.plot.player.style import GREY, VERMILLION, format_bytes, rank_color, text_on
from course_lib.trace import Timeline

LEFT, TOP, SIDE = 62, 118, 320  # of the grid
HELD, WORK, WIDE = 76, 200, 360  # in a rank's row: its block, what it does, how wide the row is


def ring_attention_steps(timeline: Timeline, call: int = -1) -> Player:
    """A player through the hops of one recorded forward of ring attention.

    A row of the grid is a piece of queries, a column a piece of keys, each with the rank that it
    belongs to. Where they have met, the cell has the colour of the rank that computed it and the
    number of the hop. At the right, the block of keys and values that each rank holds now.

    Args:
        timeline: ledgers of all ranks, with the spans of `ring_attention`.
        call: which of the recorded calls, in order of time; the last by default.

    Raises:
        Refusal: there is no such call.
    """
    drawing = RingAttentionDrawing(read_tiles(timeline, call))
    frames = [drawing.frame(hop) for hop in range(-1, drawing.story.hops)]
    return Player(
        drawing.size,
        drawing.background(),
        drawing.places(),
        frames,
        title=f"ring attention of {drawing.story.length} tokens on "
        f"{len(drawing.story.ranks)} ranks",
        alt=_alt(drawing.story),
        still=min(2, len(frames) - 1),  # the first block of a neighbour: who has to wait?
    )


class RingAttentionDrawing:
    """Where the grid and the rows of the ranks are.

    Args:
        story: the attention.
    """

    def __init__(self, story: Tiles) -> None:
        self.story = story
        self.scale = SIDE / story.length
        self.row = max(44.0, SIDE / len(story.ranks))
        self.right = LEFT + SIDE + 44
        self.size = (self.right + WIDE + 16, TOP + max(SIDE, self.row * len(story.ranks)) + 46)
        self.cells = [(query, key) for query in story.owner for key in story.owner]
        self.met = {(tile.query, tile.key): tile for tile in story.tiles}
        self.most = max(1, *(story.pairs(rank, story.hops) for rank in story.ranks))

    def places(self) -> list[svg.Point]:
        """Origins of the parts: heading, cells, rows of the ranks."""
        cells = [
            (LEFT + key.start * self.scale, TOP + query.start * self.scale)
            for query, key in self.cells
        ]
        rows = [(self.right, TOP + self.row * place) for place in range(len(self.story.ranks))]
        return [(16, 24), *cells, *rows]

    # --- what does not change ----------------------------------------------------------------
    def background(self) -> str:
        """The owners of the pieces along both edges, the words, and the legend."""
        out = [_legend(16, 54)]
        for piece, rank in self.story.owner.items():
            start, long = piece.start * self.scale, self._extent(piece)
            out.append(svg.box(LEFT + start + 1, TOP - 22, long - 2, 18, fill=rank_color(rank)))
            out.append(svg.box(LEFT - 28, TOP + start + 1, 24, long - 2, fill=rank_color(rank)))
            if long > 9:
                ink, middle = text_on(rank_color(rank)), start + long / 2
                out.append(svg.text(LEFT + middle, TOP - 9, str(rank), color=ink, bold=True))
                out.append(svg.text(LEFT - 16, TOP + middle + 4, str(rank), color=ink, bold=True))
        words = "keys and values of rank ... →"
        out.append(svg.text(LEFT, TOP - 32, words, kind="soft", size=11.5, anchor="start"))
        words = "↑ queries of rank ...; a piece is as wide as its number of tokens"
        foot = self.size[1] - 18
        out.append(svg.text(LEFT - 28, foot, words, kind="soft", size=11.5, anchor="start"))
        heads = ((HELD, "holds the block of"), (WORK, "in this hop"))
        out += [
            svg.text(self.right + x, TOP - 9, word, kind="soft", size=11.5, anchor="start")
            for x, word in heads
        ]
        words = "bars: pairs of query and key computed so far"
        out.append(svg.text(self.right, foot, words, kind="soft", size=11.5, anchor="start"))
        return "".join(out)

    def _extent(self, piece: Extent) -> float:
        return (piece.stop - piece.start) * self.scale

    # --- what changes ------------------------------------------------------------------------
    def frame(self, hop: int) -> Frame:
        """The state at the end of a hop; -1 is before the first."""
        words = "before the first hop"
        if hop >= 0:
            words = f"hop {hop} · met so far: {hop + 1} of {self.story.hops} blocks"
        head = svg.text(0, 0, words, size=15, anchor="start", bold=True)
        cells = [self._cell(query, key, hop) for query, key in self.cells]
        rows = [self._rank(rank, hop) for rank in self.story.ranks]
        return Frame((head, *cells, *rows), _caption(self.story, hop))

    def _cell(self, query: Extent, key: Extent, hop: int) -> str:
        """A pair of pieces: not met yet, skipped, computed in full or in half."""
        high, wide = self._extent(query) - 2, self._extent(key) - 2
        tile = self.met.get((query, key))
        if tile is None or tile.hop > hop:
            return svg.box(1, 1, wide, high, kind="panel", radius=2)
        words = "–" if tile.skipped else str(tile.hop)
        out, ink = [_shape(tile, wide, high)], text_on(rank_color(tile.rank))
        if min(wide, high) > 12:
            x, y = (wide * 0.28, high * 0.9) if tile.masked else (wide / 2 + 1, high / 2 + 5)
            out.append(
                svg.text(
                    x,
                    y,
                    words,
                    size=min(12, high * 0.45) if tile.masked else 12,
                    color="" if tile.skipped else ink,
                    kind="soft",
                )
            )
        if tile.hop == hop and not tile.skipped:
            out.append(svg.box(1, 1, wide, high, kind="ink-edge", edge=2, radius=2))
        return "".join(out)

    def _rank(self, rank: int, hop: int) -> str:
        """The block that a rank holds, what it does with it, and its pairs so far."""
        out = [svg.pill(30, 12, f"rank {rank}", rank_color(rank), text_on(rank_color(rank)), 60)]
        owner = self.story.held(hop, rank) if hop >= 0 else rank
        if owner is not None:
            color = rank_color(owner)
            out.append(svg.box(HELD, 2, 108, 20, fill=color))
            out.append(svg.text(HELD + 54, 16, f"rank {owner}", color=text_on(color), bold=True))
        if hop >= 0:
            out.append(self._does(rank, hop))
        pairs = self.story.pairs(rank, hop)
        out.append(svg.box(0, 28, WIDE - 70, 8, kind="panel", radius=2))
        if pairs:
            bar = (WIDE - 70) * pairs / self.most
            out.append(svg.box(0, 28, bar, 8, fill=rank_color(rank), radius=2))
        out.append(svg.text(WIDE - 62, 36, f"{pairs:,}", size=11.5, anchor="start"))
        return "".join(out)

    def _does(self, rank: int, hop: int) -> str:
        """`2 tiles, sends 4 KiB to rank 1`, or `idle`."""
        count = sum(not tile.skipped for tile in self.story.of(hop, rank))
        doing = _many(count, "tile") if count else "idle"
        if (rank, hop) in self.story.sent:
            to, sent = self.story.sent[rank, hop]
            doing += f" · {format_bytes(sent)} to rank {to}"
        color = "" if count else VERMILLION
        return svg.text(WORK, 16, doing, anchor="start", color=color, bold=not count)


def _shape(tile: Tile, wide: float, high: float) -> str:
    """The cell of two pieces that have met: empty, whole, or the half below the diagonal."""
    color = rank_color(tile.rank)
    if tile.skipped or tile.masked:
        plate = svg.box(1, 1, wide, high, kind="panel", radius=2)
        return plate if tile.skipped else plate + _half(1, 1, wide, high, color)
    return svg.box(1, 1, wide, high, fill=color, radius=2)


def _half(x: float, y: float, wide: float, high: float, color: str) -> str:
    """The half of a box below its diagonal."""
    corners = ((x, y), (x, y + high), (x + wide, y + high))
    points = " ".join(f"{svg.number(a)},{svg.number(b)}" for a, b in corners)
    return f'<polygon points="{points}" fill="{color}"/>'


def _legend(x: float, y: float) -> str:
    """What the cells mean."""
    out = [svg.box(x, y - 10, 13, 13, fill=GREY, radius=2)]
    out.append(svg.text(x + 18, y + 1, "computed, in hop ...", size=11.5, anchor="start"))
    out.append(svg.box(x + 152, y - 10, 13, 13, kind="panel", radius=2))
    out.append(_half(x + 152, y - 10, 13, 13, GREY))
    words = "with a mask: the same tokens"
    out.append(svg.text(x + 170, y + 1, words, size=11.5, anchor="start"))
    out.append(svg.box(x + 366, y - 10, 13, 13, kind="panel", radius=2))
    out.append(svg.text(x + 372.5, y + 1, "–", kind="soft"))
    words = "skipped: all in the future"
    out.append(svg.text(x + 384, y + 1, words, size=11.5, anchor="start"))
    return "".join(out)


# --- words ---------------------------------------------------------------------------------------
def _many(count: int, thing: str) -> str:
    return f"{count} {thing}{'' if count == 1 else 's'}"


def _caption(story: Tiles, hop: int) -> str:
    """What the ranks compute in a hop, who is idle, and, at the end, the verdict."""
    if hop < 0:
        return "Before the first hop, every rank holds queries, keys and values of its own tokens."
    counts = {r: sum(not t.skipped for t in story.of(hop, r)) for r in story.ranks}
    idle = [str(rank) for rank, count in counts.items() if not count]
    busy = sorted({count for count in counts.values() if count})
    who = "every rank computes"
    if idle:
        working = len(counts) - len(idle)
        who = f"{_many(working, 'rank')} compute{'s' if working == 1 else ''}"
    span = " to ".join(_many(count, "tile") for count in busy[:1] + busy[1:][-1:]) or "nothing"
    words = f"Hop {hop}: {who} {span}"
    if idle:
        words += f"; idle: {'rank' if len(idle) == 1 else 'ranks'} {', '.join(idle)}"
    return words + "." + (_verdict(story) if hop == story.hops - 1 else "")


def _verdict(story: Tiles) -> str:
    """Whether everything has been computed, and how well the work was divided."""
    pairs = [story.pairs(rank, story.hops) for rank in story.ranks]
    needless = sum(tile.future and not tile.skipped for tile in story.tiles)
    wrong = f" {_many(needless, 'tile')} of the future were computed." if needless else ""
    if sum(pairs) != story.needed():
        return f"{wrong} Wrong: {sum(pairs):,} of {story.needed():,} pairs of the causal mask."
    even = story.needed() / len(story.ranks)
    return (
        f"{wrong} All {story.needed():,} pairs of the causal mask are there. The busiest ranks of "
        f"the hops compute {story.in_a_row():,} pairs one after another; divided evenly it would "
        f"be {even:,.0f}."
    )


def _alt(story: Tiles) -> str:
    """The whole attention: who has which tokens, hop by hop, and the shares."""
    out = [
        f"Ring attention of {story.length} tokens on {len(story.ranks)} ranks, drawn from a "
        "record as a grid of queries and keys."
    ]
    for rank in story.ranks:
        pieces = " and ".join(str(piece) for piece, owner in story.owner.items() if owner == rank)
        total = story.pairs(rank, story.hops)
        out.append(f"Rank {rank} has tokens {pieces} and computes {total:,} pairs.")
    return " ".join([*out, *(_caption(story, hop) for hop in range(story.hops))])
