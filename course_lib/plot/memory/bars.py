"""Bars of bytes: what each rank sent beside the formula, and what it held, by memory class.

Paper: Rajbhandari et al., "ZeRO" (2020), figure 1, is the memory chart with computed numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter

from course_lib.plot.player.figure import (
    as_picture,
    legend_below,
    new_figure,
    nothing_recorded,
    style,
)
from course_lib.plot.player.picture import Picture
from course_lib.plot.player.style import INK, MEMORY_COLORS, format_bytes, rank_color, text_on
from course_lib.trace import Ledger, Timeline, spread


# --- sent ----------------------------------------------------------------------------------------
def byte_bars(timeline: Timeline) -> Picture:
    """Bytes that each rank sent, by operation: a bar measured, a black mark for the formula.

    Args:
        timeline: ledgers of all ranks.

    Raises:
        Refusal: nothing was sent.
    """
    rows = [row for row in timeline.rows() if any(row["sent"]) or any(row["formula_sent"])]
    if not rows:
        raise nothing_recorded("bytes by operation", "no bytes sent")
    ranks = timeline.ranks
    with style():
        figure, axes = new_figure(7.6, 0.85 + sum(_row_height(ranks) for _ in rows))
        tall = 0.8 / len(ranks)
        for place, row in enumerate(rows):
            for index, rank in enumerate(ranks):
                y = place - 0.4 + (index + 0.5) * tall
                axes.barh(y, row["sent"][index], tall * 0.9, color=rank_color(rank))
                mark = row["formula_sent"][index]
                axes.plot([mark, mark], [y - tall / 2, y + tall / 2], color=INK, linewidth=2)
        axes.set_yticks(range(len(rows)), [_row_name(row) for row in rows])
        axes.invert_yaxis()
        _byte_axis(axes, max(max(row["sent"] + row["formula_sent"]) for row in rows))
        handles = [Patch(color=rank_color(rank), label=f"rank {rank}") for rank in ranks]
        legend_below(figure, [*handles, Line2D([], [], color=INK, linewidth=2, label="formula")])
        axes.set_title("Bytes sent by each rank: measured (bar) and by the formula (mark)")
        return as_picture(figure, "bytes sent by operation", _byte_words(rows, ranks))


def _row_height(ranks: Sequence[int]) -> float:
    """Inches for one operation's bars."""
    return max(0.5, 0.17 * len(ranks) + 0.12)


def _row_name(row: Mapping[str, Any]) -> str:
    calls = spread(row["calls"])
    return f"{row['op']}\n{row['axis']}, {calls} call{'' if calls == '1' else 's'}"


def _byte_words(rows: Sequence[Mapping[str, Any]], ranks: Sequence[int]) -> str:
    """The bars in words."""
    out = ["Bytes sent by each rank, by operation."]
    for row in rows:
        each = zip(ranks, row["sent"], row["formula_sent"], strict=True)
        parts = [
            f"rank {rank} sent {format_bytes(sent)}, by the formula {format_bytes(says)}"
            for rank, sent, says in each
        ]
        out.append(f"{row['op']} ({row['axis']}): {'; '.join(parts)}.")
    return " ".join(out)


# --- held ----------------------------------------------------------------------------------------
def memory_bars(timeline: Timeline, titles: Mapping[int, str] | None = None) -> Picture:
    """Peak bytes of each memory class on each rank, stacked.

    Args:
        timeline: ledgers of all ranks.
        titles: names to write instead of `rank 0`, ...: to compare strategies side by side, give
            each its own ledger and its name here.

    Raises:
        Refusal: no memory was counted.
    """
    names = [n for n in MEMORY_COLORS if any(book.peak.get(n) for book in timeline.ledgers)]
    if not names:
        raise nothing_recorded("memory by class", "no memory counted")
    sums = [sum(book.peak.values()) for book in timeline.ledgers]
    bars = [(titles or {}).get(rank, f"rank {rank}") for rank in timeline.ranks]
    with style():
        figure, axes = new_figure(7.6, 0.95 + 0.42 * len(bars))
        for place, ledger in enumerate(timeline.ledgers):
            _stack(axes, place, ledger, names, max(sums))
        axes.set_yticks(range(len(bars)), bars)
        axes.invert_yaxis()
        _byte_axis(axes, max(sums) * 1.1)
        legend_below(figure, [Patch(color=MEMORY_COLORS[n], label=n) for n in names])
        axes.set_title("Memory by class: the peak of each, in bytes")
        words = [
            f"{bar}: {', '.join(f'{n} {format_bytes(book.peak.get(n, 0))}' for n in names)}"
            for bar, book in zip(bars, timeline.ledgers, strict=True)
        ]
        alt = f"Peak memory by class. {'; '.join(words)}."
        return as_picture(figure, "memory by class", alt)


def _stack(axes: Axes, place: int, ledger: Ledger, names: Sequence[str], most: int) -> None:
    """One rank's classes end to end, with their bytes where there is room, and the sum."""
    left = 0
    for name in names:
        count, color = ledger.peak.get(name, 0), MEMORY_COLORS[name]
        axes.barh(place, count, 0.72, left=left, color=color)
        if count > 0.1 * most:
            axes.text(
                left + count / 2,
                place,
                format_bytes(count),
                ha="center",
                va="center",
                color=text_on(color),
                fontsize=9,
            )
        left += count
    axes.text(
        left + 0.01 * most, place, format_bytes(left), va="center", fontweight="bold", fontsize=9
    )


# --- shared --------------------------------------------------------------------------------
def _byte_axis(axes: Axes, most: float) -> None:
    """An axis from 0 to `most` bytes with a grid at multiples of a power of two."""
    step = 1 << (max(1, round(most / 7)) - 1).bit_length()
    axes.xaxis.set_ticks([step * k for k in range(int(most / step) + 1)])
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_bytes(value)))
    axes.set_xlim(0, most * 1.02)
    axes.grid(axis="x")
    axes.tick_params(axis="both", length=0)
    axes.spines["left"].set_visible(False)
