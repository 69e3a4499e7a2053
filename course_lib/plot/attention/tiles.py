"""A ring attention's story, read from its spans: which pieces met on which rank, in which hop.

Paper: Liu et al., "Ring Attention" (2023), figure 2, whose inner and outer loop these are.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from course_lib.plot.player.figure import nothing_recorded
from course_lib.trace import Event, Ledger, Span, Timeline

NAME = re.compile(r"(attend|skip) hop (\d+) q(\d+):(\d+) k(\d+):(\d+)")


class Extent(NamedTuple):
    """Consecutive positions of the sequence, from `start` up to `stop`, left out itself."""

    start: int
    stop: int

    def __str__(self) -> str:
        return f"{self.start}–{self.stop - 1}" if self.stop - self.start > 1 else f"{self.start}"


class Tile(NamedTuple):
    """A piece of queries and a piece of keys that met.

    Attributes:
        rank: whose queries.
        hop: in which hop.
        query: positions of the queries.
        key: positions of the keys.
        skipped: whether nothing was computed.
        begin: when, in seconds on the machine's clock.
    """

    rank: int
    hop: int
    query: Extent
    key: Extent
    skipped: bool
    begin: float

    @property
    def masked(self) -> bool:
        """Whether both are the same positions, so that half of the scores are in the future."""
        return self.query == self.key

    @property
    def future(self) -> bool:
        """Whether no query may see any of the keys."""
        return self.key.start >= self.query.stop

    @property
    def pairs(self) -> int:
        """Pairs of a query and a key that were computed and that the causal mask leaves."""
        if self.skipped or self.future:
            return 0
        length = self.query.stop - self.query.start
        return (
            length * (length + 1) // 2 if self.masked else length * (self.key.stop - self.key.start)
        )


@dataclass(frozen=True)
class Tiles:
    """One recorded ring attention.

    Attributes:
        ranks: that took part.
        tiles: in the order of hops.
        owner: the rank that each piece belongs to, by the piece, in the order of the sequence.
        sent: (receiver, bytes) of the block that a rank sent on in a hop, where it did.
    """

    ranks: tuple[int, ...]
    tiles: tuple[Tile, ...]
    owner: dict[Extent, int]
    sent: dict[tuple[int, int], tuple[int, int]]

    @property
    def hops(self) -> int:
        """How many blocks each rank met."""
        return 1 + max(tile.hop for tile in self.tiles)

    @property
    def length(self) -> int:
        """T, tokens of the sequence."""
        return max(piece.stop for piece in self.owner)

    def of(self, hop: int, rank: int | None = None) -> list[Tile]:
        """What met in a hop, on all ranks or on one."""
        return [t for t in self.tiles if t.hop == hop and rank in (None, t.rank)]

    def held(self, hop: int, rank: int) -> int | None:
        """The rank whose block another one held in a hop, if that is known."""
        owners = {self.owner.get(tile.key) for tile in self.of(hop, rank)}
        return owners.pop() if len(owners) == 1 else None

    def pairs(self, rank: int, until: int) -> int:
        """Pairs that a rank has computed up to the end of a hop."""
        return sum(t.pairs for t in self.tiles if t.rank == rank and t.hop <= until)

    def in_a_row(self) -> int:
        """Pairs one after another, if every hop is as long as its busiest rank needs."""
        return sum(
            max(sum(t.pairs for t in self.of(hop, rank)) for rank in self.ranks)
            for hop in range(self.hops)
        )

    def needed(self) -> int:
        """Pairs of the whole causal mask."""
        return self.length * (self.length + 1) // 2


def read_tiles(timeline: Timeline, call: int = -1) -> Tiles:
    """The story of one ring attention.

    Args:
        timeline: ledgers with the spans `attend hop 2 q0:32 k64:96` and the marks `skip hop ...`.
        call: which of the recorded ones, in order of time.

    Raises:
        Refusal: there is none.
    """
    calls = {book.rank: list(_calls(book)) for book in timeline.ledgers}
    try:
        mine = {rank: found[call] for rank, found in calls.items() if found}
    except IndexError:
        mine = {}
    if not mine:
        counts = ", ".join(f"rank {rank}: {len(found)}" for rank, found in calls.items())
        raise nothing_recorded(f"ring attention number {call}", f"calls recorded: {counts}")
    tiles = sorted((t for found in mine.values() for t in found), key=lambda t: (t.hop, t.rank))
    owner = {tile.query: tile.rank for tile in sorted(tiles, key=lambda tile: tile.query)}
    sent = {
        (rank, hop): (event.peer, event.sent)
        for rank, found in mine.items()
        for hop, event in _sends(timeline.rank(rank), found)
    }
    return Tiles(tuple(mine), tuple(tiles), owner, sent)


def _calls(book: Ledger) -> Iterator[list[Tile]]:
    """A rank's ring attentions; a new one begins where the hops begin again."""
    tiles: list[Tile] = []
    for tile in filter(None, (_tile(span) for span in book.spans)):
        met = {(t.query, t.key) for t in tiles}
        if tiles and (tile.hop < tiles[-1].hop or (tile.query, tile.key) in met):
            yield tiles
            tiles = []
        tiles.append(tile)
    if tiles:
        yield tiles


def _tile(span: Span) -> Tile | None:
    match = NAME.fullmatch(span.name)
    if not match:
        return None
    hop, *ends = map(int, match.groups()[1:])
    query, key = Extent(*ends[:2]), Extent(*ends[2:])
    return Tile(span.rank, hop, query, key, match[1] == "skip", span.begin)


def _sends(book: Ledger, tiles: list[Tile]) -> Iterator[tuple[int, Event]]:
    """The message that left for each hop: it began after the hop before and before this one."""
    after = -math.inf
    for hop in sorted({tile.hop for tile in tiles}):
        begin = min(tile.begin for tile in tiles if tile.hop == hop)
        posted = [e for e in book.events if e.op == "send" and e.step == hop]
        for event in [e for e in posted if after <= e.begin <= begin][-1:]:
            yield hop, event
        after = begin
