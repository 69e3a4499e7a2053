"""The machine room over time: a row a rank, which dies, freezes, is cut off, heals and works."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.patches import Patch

from course_lib.plot.player.figure import (
    as_picture,
    legend_below,
    new_figure,
    nothing_recorded,
    style,
)
from course_lib.plot.player.picture import Picture
from course_lib.plot.player.style import (
    GREEN,
    INK,
    ORANGE,
    PANEL,
    PURPLE,
    SKY,
    VERMILLION,
    text_on,
)

Spell = tuple[int, float, float, str]  # rank, begin, end, situation
LOOKS = {  # colour, what it means, and the word in a bar that is long enough
    "works": (GREEN, "works", ""),
    "heals": (ORANGE, "gets its state", "heals"),
    "kill": (VERMILLION, "killed, not yet replaced", "killed"),
    "freeze": (SKY, "frozen", "frozen"),
    "cut": (PURPLE, "cut off", "cut off"),
    "out": (PANEL, "out of the quorum", "out"),
}


def machine_room(
    spells: Sequence[Spell], steps: Sequence[tuple[float, int]], title: str = ""
) -> Picture:
    """Each rank's situation over time, and above it how many batches each step counted.

    A mark ends each step, so that a wait for a silent rank shows as a gap between two marks.

    Args:
        spells: (rank, begin, end, situation), in seconds; a situation is one of `LOOKS`.
        steps: for each step that counted, its end in seconds and how many batches it had.
        title: of the picture.

    Raises:
        Refusal: there is no spell, or no step.
    """
    if not spells or not steps:
        raise nothing_recorded("a machine room", "no rank, or no step that counted")
    ranks = max(rank for rank, *_ in spells) + 1
    with style():
        figure, lower = new_figure(7.6, 1.6 + 0.3 * ranks)
        upper, room = figure.subplots(2, 1, sharex=True, height_ratios=(1, 0.25 * ranks))
        lower.remove()
        whole = max(end for _, _, end, _ in spells)
        for rank, begin, end, what in spells:
            color, _, word = LOOKS[what]
            room.barh(rank, end - begin, left=begin, height=0.82, color=color, linewidth=0)
            if (end - begin) / whole > 0.0125 * len(word):
                room.text((begin + end) / 2, rank, word, ha="center", va="center", fontsize=8.5,
                          color=INK if color == PANEL else text_on(color))  # fmt: skip
        room.set_yticks(range(ranks), [f"rank {rank}" for rank in range(ranks)])
        room.invert_yaxis()
        room.set_xlabel("seconds since the first step")
        upper.step([0.0, *(end for end, _ in steps)], [steps[0][1], *(n for _, n in steps)],
                   where="pre", color=INK, linewidth=1.2)  # fmt: skip
        ends, counts = zip(*steps, strict=True)
        upper.plot(ends, counts, "|", color=INK, markersize=7)
        upper.set_ylim(0, ranks + 0.6)
        upper.set_ylabel("batches\nin a step")
        upper.set_title(
            title or f"{ranks} ranks, {len(steps)} steps that counted (a mark ends each)"
        )
        seen = [what for what in LOOKS if any(spell[3] == what for spell in spells)]
        legend_below(figure, [Patch(color=LOOKS[w][0], label=LOOKS[w][1]) for w in seen])
        return as_picture(figure, "the machine room over time", _words(spells, steps, ranks),
                          measured=True)  # fmt: skip


def _words(spells: Sequence[Spell], steps: Sequence[tuple[float, int]], ranks: int) -> str:
    """The picture in words."""
    out = [f"{ranks} ranks; {len(steps)} steps counted {sum(n for _, n in steps)} batches."]
    for rank, begin, end, what in spells:
        if what in ("kill", "freeze", "cut"):
            out.append(f"Rank {rank}: {LOOKS[what][1]} from {begin:.1f} s to {end:.1f} s.")
    fewest = min(n for _, n in steps)
    ends = [0.0, *(end for end, _ in steps)]
    longest = max(after - end for end, after in zip(ends, ends[1:], strict=False))
    return " ".join(
        [*out, f"The smallest step had {fewest} batches; the longest took {longest:.1f} s."]
    )
