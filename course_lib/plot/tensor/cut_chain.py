"""A tensor on its way through operations, and how it is cut over the ranks after each of them.

Paper: Korthikanti et al. (2022), figure 5, and Jacobs et al., "DeepSpeed Ulysses" (2023), figure 2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from course_lib.plot.player import svg
from course_lib.plot.player.player import Frame, Player
from course_lib.plot.player.style import VERMILLION, rank_color
from course_lib.trace import Refusal

WIDTH, HEIGHT, TOP, TALL, WIDE, CARD = 800, 268, 82, 112, 62, 5
Look = Literal["rows", "columns", "whole", "parts"]
WORDS = {
    "rows": "each rank has some {rows}",
    "columns": "each rank has some {columns}",
    "whole": "every rank has the whole",
    "parts": "each rank has one summand of the whole",
}


class Link(NamedTuple):
    """One operation and the tensor that it gives.

    Attributes:
        operation: what is done; empty for the first tensor.
        tensor: what comes out, in a word or two.
        look: how that is cut over the ranks.
        sends: whether the operation sends anything.
    """

    operation: str
    tensor: str
    look: Look
    sends: bool = False


def cut_chain_steps(
    links: Sequence[Link], *, rows: str, columns: str, ranks: int = 4, still: int = -1
) -> Player:
    """A player that adds one operation and its result in every frame.

    Args:
        links: from left to right, two at least and eight at most.
        rows: what the rows of all tensors are.
        columns: what the columns are.
        ranks: of the group, eight at most.
        still: the frame that it opens on; the last by default.

    Raises:
        Refusal: there are too few or too many tensors or ranks for the picture.
    """
    if not 2 <= len(links) <= 8 or not 1 <= ranks <= 8:
        raise Refusal(
            f"a picture of {len(links)} tensors on {ranks} ranks",
            "room for two to eight tensors, on one to eight ranks",
            "each must be wide enough to be seen",
        )
    pitch = (WIDTH - 2 * 24 - WIDE) / (len(links) - 1)
    corners = [(24 + place * pitch, TOP) for place in range(len(links))]
    said = {look: words.format(rows=rows, columns=columns) for look, words in WORDS.items()}
    frames = [_frame(links, shown, ranks, pitch, said) for shown in range(1, len(links) + 1)]
    legend = f"rows: {rows} · columns: {columns} · a colour for each rank"
    return Player(
        (WIDTH, HEIGHT),
        svg.text(24, HEIGHT - 14, legend, kind="soft", size=11.5, anchor="start"),
        [(24, 28), *corners],
        frames,
        title=f"how a tensor is cut on {ranks} ranks",
        alt=" ".join(frame.caption for frame in frames),
        still=still,
    )


def _frame(
    links: Sequence[Link], shown: int, ranks: int, pitch: float, said: Mapping[str, str]
) -> Frame:
    last = links[shown - 1]
    words = f"{last.tensor}: {said[last.look]}"
    head = svg.text(0, 0, words, size=15, anchor="start", bold=True)
    parts = [_tensor(link, ranks, pitch) if n < shown else "" for n, link in enumerate(links)]
    when = f"After {last.operation}" if last.operation else "At the start"
    sent = " This operation sends." if last.sends else ""
    return Frame((head, *parts), f"{when}, {said[last.look]}.{sent}")


def _tensor(link: Link, ranks: int, pitch: float) -> str:
    """A tensor, its name below, and the operation with its arrow at the left."""
    out = [svg.text(WIDE / 2, TALL + 20, link.tensor, size=12, bold=True)]
    if link.operation:
        middle, color = (WIDE - pitch) / 2, VERMILLION if link.sends else ""
        out.append(svg.text(middle, -22, link.operation, size=12, color=color, bold=link.sends))
        out.append(svg.arrow([(WIDE - pitch + 5, TALL / 2), (-6, TALL / 2)], color=color))
    return "".join(out) + _shape(link.look, ranks)


def _shape(look: Look, ranks: int) -> str:
    if look == "rows":
        high = TALL / ranks
        places = [(0.0, rank * high, float(WIDE), high) for rank in range(ranks)]
    elif look == "columns":
        wide = WIDE / ranks
        places = [(rank * wide, 0.0, wide, float(TALL)) for rank in range(ranks)]
    elif look == "parts":
        wide, high = WIDE - CARD * (ranks - 1), TALL - CARD * (ranks - 1)
        places = [(CARD * rank, CARD * rank, wide, high) for rank in range(ranks)]
    else:
        whole = (0, 0, WIDE, TALL)
        return svg.box(*whole, kind="panel", radius=2) + svg.box(
            *whole, kind="line-edge", radius=2, edge=1.5
        )
    return "".join(
        svg.box(x + 0.5, y + 0.5, wide - 1, high - 1, fill=rank_color(rank), radius=2)
        for rank, (x, y, wide, high) in enumerate(places)
    )
