"""Which heads of attention lie on which rank, and which ranks share a key-value head.

Paper: Ainslie et al., "GQA" (2023), whose heads Megatron-LM's cut (2019) deals out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from course_lib.plot.player import svg
from course_lib.plot.player.player import Frame, Player
from course_lib.plot.player.style import VERMILLION, rank_color, text_on
from course_lib.trace import Refusal

WIDTH, LEFT, GAP, TOP, HEIGHT = 800, 20, 14, 52, 250
Heads = Sequence[int]
Cut = Sequence[tuple[Heads, Heads]]


def head_cut_steps(cuts: Mapping[str, Cut], still: int = 0) -> Player:
    """A player with one frame for each cut of the same query heads.

    Args:
        cuts: the frame's name to the heads of each rank: its query heads, its key-value heads.
        still: the frame that it opens on.

    Raises:
        Refusal: there is no cut, or cuts of different numbers of ranks.
    """
    sizes = {len(cut) for cut in cuts.values()}
    if len(sizes) != 1 or 0 in sizes:
        raise Refusal(
            f"a picture of {len(cuts)} cuts of heads",
            f"numbers of ranks: {sorted(sizes)}",
            "each frame shows the same ranks",
        )
    frames = [Frame((_frame(name, cut),), _caption(name, cut)) for name, cut in cuts.items()]
    alt = " ".join(frame.caption for frame in frames)
    title = f"attention's heads on {sizes.pop()} ranks"
    return Player((WIDTH, HEIGHT), "", [(0, 0)], frames, title=title, alt=alt, still=still)


def sharers(cut: Cut) -> dict[int, list[int]]:
    """The ranks that have a key-value head, by the head; heads that one rank has are left out."""
    owners: dict[int, list[int]] = {}
    for rank, (_, key_value) in enumerate(cut):
        for head in key_value:
            owners.setdefault(head, []).append(rank)
    return {head: ranks for head, ranks in owners.items() if len(ranks) > 1}


def _frame(name: str, cut: Cut) -> str:
    wide = (WIDTH - 2 * LEFT + GAP) / len(cut) - GAP
    out = [svg.text(LEFT, 26, name, size=15, anchor="start", bold=True)]
    for rank, (query, key_value) in enumerate(cut):
        out += _panel(rank, LEFT + rank * (wide + GAP), wide, query, key_value)
    for head, ranks in sharers(cut).items():
        out += _bracket(head, LEFT + ranks[0] * (wide + GAP), ranks, wide)
    return "".join(out)


def _panel(rank: int, x: float, wide: float, query: Heads, key_value: Heads) -> list[str]:
    """A rank: query heads above, the key-value heads that they attend with below."""
    color = rank_color(rank)
    out = [
        svg.box(x, TOP, wide, 136, kind="panel", radius=6),
        svg.text(x + wide / 2, TOP + 18, f"rank {rank}", size=12.5, bold=True),
    ]
    above, below = _middles(x, wide, len(query)), _middles(x, wide, len(key_value))
    for place, middle in enumerate(above):
        meets = below[place * len(key_value) // len(query)]
        out.append(svg.line([(middle, TOP + 62), (meets, TOP + 96)], width=1.5))
    out += [
        svg.pill(middle, TOP + 48, f"q{head}", color, text_on(color), 40)
        for middle, head in zip(above, query, strict=True)
    ]
    for middle, head in zip(below, key_value, strict=True):
        out.append(svg.box(middle - 30, TOP + 97, 60, 26, kind="paper", radius=6))
        out.append(svg.box(middle - 30, TOP + 97, 60, 26, kind="ink-edge", radius=6, edge=1.5))
        out.append(svg.text(middle, TOP + 114.5, f"k{head}, v{head}", size=12))
    return out


def _middles(x: float, wide: float, count: int) -> list[float]:
    return [x + wide * (place + 0.5) / count for place in range(count)]


def _bracket(head: int, x: float, ranks: list[int], wide: float) -> list[str]:
    """Under the ranks that share a head: what they must add up."""
    end, foot = x + len(ranks) * (wide + GAP) - GAP, TOP + 152
    points = [(x + 8, foot - 8), (x + 8, foot), (end - 8, foot), (end - 8, foot - 8)]
    words = f"sum the gradients of k{head}, v{head}"
    return [
        svg.line(points, color=VERMILLION),
        svg.text((x + end) / 2, foot + 20, words, size=12.5, color=VERMILLION, bold=True),
    ]


def _caption(name: str, cut: Cut) -> str:
    shared = sharers(cut)
    if not shared:
        return f"{name}: every rank has whole groups of heads, and nothing is shared."
    count = len(next(iter(shared.values())))
    return (
        f"{name}: {count} ranks hold a copy of each, use it with different query heads, "
        "and must sum its gradients."
    )
