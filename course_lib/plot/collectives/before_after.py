"""What each rank holds before a collective and after it, piece by piece."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from course_lib.plot.player import svg
from course_lib.plot.player.player import Frame, Player
from course_lib.plot.player.style import GREY, rank_color, text_on
from course_lib.trace import Refusal

WIDTH, HEIGHT, LEFT, GAP, PANEL = 800, 250, 20, 16, 70
BEFORE, AFTER = 44, 166  # tops of the two rows of panels

Pieces = Sequence[int]  # of one rank, in order; 0 where it has nothing
Held = Sequence[Pieces]  # by rank

WORDS = {
    "broadcast": "rank 0 has a tensor; afterwards all ranks have it",
    "reduce_scatter": "each rank has a tensor; afterwards rank i has piece i of their sum",
    "all_gather": "rank i has piece i; afterwards all ranks have all pieces, in order",
    "all_reduce": "each rank has a tensor; afterwards all ranks have the sum",
    "all_to_all": "each rank has a piece for each rank; afterwards each has those meant for it",
}


def before_and_after(runs: Mapping[str, tuple[Held, Held]], still: int = 0) -> Player:
    """A player with one frame for each collective: N pieces on each of N ranks, before and after.

    Rank r's pieces are to be 1, 2, 3, ... times 10 to the power r: then the digits of every number
    say whose pieces it was added up from, and a piece of several ranks is drawn in grey.

    Args:
        runs: the collective's name to what the ranks held before it and what they hold afterwards,
            N whole numbers a rank, 0 for a piece that is not there.
        still: the frame that it opens on.

    Raises:
        Refusal: a collective did something else than its caption says, or has no caption.
    """
    frames = []
    for name, (before, after) in runs.items():
        if name not in WORDS or _list(after) != result(name, before):
            raise Refusal(
                f"a picture of {name}, which makes {_list(before)} of its ranks",
                f"{_list(after)} afterwards",
                f"the picture knows {', '.join(WORDS)}, and what each of them does",
            )
        frames.append(Frame((_frame(before, after),), f"{name}: {WORDS[name]}."))
    alt = " ".join(frame.caption for frame in frames)
    title = f"{len(frames)} collectives"
    return Player((WIDTH, HEIGHT), "", [(0, 0)], frames, title=title, alt=alt, still=still)


def result(name: str, before: Held) -> list[list[int]]:
    """What a collective makes of what its ranks hold; `before` has zeros where nothing is."""
    held = _list(before)
    size = len(held)
    sums = [sum(pieces) for pieces in zip(*held, strict=True)]
    if name == "reduce_scatter":
        return [[sums[i] if i == rank else 0 for i in range(size)] for rank in range(size)]
    if name == "all_to_all":
        return [[pieces[rank] for pieces in held] for rank in range(size)]
    return [sums] * size  # what is not there is 0, so a broadcast and an all-gather are sums too


def _list(held: Held) -> list[list[int]]:
    return [[int(piece) for piece in pieces] for pieces in held]


def _frame(before: Held, after: Held) -> str:
    wide = (WIDTH - 2 * LEFT + GAP) / len(before) - GAP
    out = []
    for word, top, held in (("before", BEFORE, before), ("after", AFTER, after)):
        out.append(svg.text(LEFT, top - 20, word, size=14, anchor="start", bold=True))
        for rank, pieces in enumerate(held):
            out += _panel(rank, LEFT + rank * (wide + GAP), top, wide, pieces)
    return "".join(out)


def _panel(rank: int, x: float, top: float, wide: float, pieces: Pieces) -> list[str]:
    """A rank with its pieces; dashes are where it has none."""
    out = [
        svg.box(x, top, wide, PANEL, kind="panel", radius=6),
        svg.text(x + wide / 2, top + 18, f"rank {rank}", size=12.5, bold=True),
    ]
    step = (wide - 12) / len(pieces)
    for place, piece in enumerate(pieces):
        middle = x + 6 + step * (place + 0.5)
        if int(piece):
            color = _color(int(piece))
            out.append(svg.pill(middle, top + 46, f"{int(piece)}", color, text_on(color), step - 4))
        else:
            out.append(svg.text(middle, top + 50, "–", kind="soft"))
    return out


def _color(piece: int) -> str:
    """Of the one rank that a piece is from; grey if several ranks are in it."""
    ranks = [power for power, digit in enumerate(reversed(str(piece))) if digit != "0"]
    return rank_color(ranks[0]) if len(ranks) == 1 else GREY
