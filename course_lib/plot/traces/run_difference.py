"""Two recorded runs, a row a rank and a column a step: where they part, and how it spreads."""

from __future__ import annotations

from course_lib.plot.player import svg
from course_lib.plot.player.figure import nothing_recorded
from course_lib.plot.player.picture import Picture
from course_lib.plot.player.style import GREEN, ORANGE, VERMILLION, rank_color, text_on
from course_lib.replay import Difference, Recording, compared, first_difference, unequal_steps

LEFT, TOP, WIDE, ROW, FOOT = 86.0, 62.0, 74.0, 40.0, 34.0
WORDS = {"equal": "=", "cause": "begins", "differs": "≠"}
COLORS = {"equal": GREEN, "cause": VERMILLION, "differs": ORANGE}
LEGEND = "=  equal to the bit · begins: made on this rank · ≠  something differs"


def run_difference(first: Recording, second: Recording) -> Picture:
    """Which ranks differ in which steps, and which of them differed first by itself.

    Args:
        first: the run that the second is held against.
        second: it, on as many ranks.

    Raises:
        Refusal: they have no step in common, or different numbers of ranks.
    """
    steps = unequal_steps(first, second) if first.world == second.world else {}
    columns = max(map(len, steps.values()), default=0)
    if not columns:
        raise nothing_recorded("two recorded runs", "no step that both have made on as many ranks")
    found = first_difference(first, second)
    out = [svg.text(16, 24, "Two runs, step by step", anchor="start", bold=True, size=13)]
    numbers = [number for number, _ in max(steps.values(), key=len)]
    out += [
        svg.text(LEFT + WIDE * (at + 0.5) - 3, TOP - 10, f"step {number}", kind="soft", size=11)
        for at, number in enumerate(numbers)
    ]
    for row, (rank, made) in enumerate(steps.items()):
        y, color = TOP + ROW * row, rank_color(rank)
        out.append(svg.pill(48, y + 16, f"rank {rank}", color, text_on(color)))
        for at, (number, differs) in enumerate(made):
            out.append(_box(LEFT + WIDE * at, y, _look(rank, number, differs, found)))
    foot = TOP + ROW * len(steps) + 16
    out.append(svg.text(LEFT, foot, LEGEND, anchor="start", kind="soft", size=11))
    width, height = LEFT + WIDE * max(columns, 6) + 16, TOP + ROW * len(steps) + FOOT
    alt = f"{len(steps)} ranks in {columns} steps. {compared(first, second)}"
    return Picture(svg.document(width, height, "".join(out), alt), alt, "two recorded runs")


def _look(rank: int, step: int, differs: bool, found: Difference | None) -> str:
    if found is not None and rank in found.ranks and step == found.step:
        return "cause"
    return "differs" if differs else "equal"


def _box(x: float, y: float, look: str) -> str:
    color = COLORS[look]
    ink = text_on(color)
    return svg.box(x, y, WIDE - 6, ROW - 8, fill=color) + svg.text(
        x + WIDE / 2 - 3, y + 21, WORDS[look], color=ink, bold=True
    )
