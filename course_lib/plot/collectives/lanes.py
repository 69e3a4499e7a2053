"""The timeline: when each rank worked and when it communicated, one lane a rank."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from matplotlib.axes import Axes

from course_lib.plot.player.figure import as_picture, new_figure, nothing_recorded, style
from course_lib.plot.player.picture import Picture
from course_lib.plot.player.style import INK, PANEL, PAPER, format_time, rank_color, text_on
from course_lib.trace import Ledger, Span, Timeline
from course_lib.trace.intervals import length, union


def timeline_lanes(timeline: Timeline) -> Picture:
    """When each rank worked (grey) and communicated (its colour).

    The thin lines below are the messages of calls that are built from them: sent ones above
    received ones, each in the colour of the rank at the other end.

    Args:
        timeline: ledgers of all ranks.

    Raises:
        Refusal: nothing was recorded.
    """
    begin, whole = timeline.begin, timeline.end - timeline.begin
    if whole <= 0:
        raise nothing_recorded("a timeline", "no event and no span with a duration")
    with style():
        figure, axes = new_figure(9, 0.9 + 0.62 * len(timeline.ranks))
        for lane, ledger in enumerate(timeline.ledgers):
            _lane(axes, lane, ledger, begin, whole)
        axes.set_yticks(range(len(timeline.ranks)), [f"rank {r}" for r in timeline.ranks])
        for label, rank in zip(axes.get_yticklabels(), timeline.ranks, strict=True):
            color = rank_color(rank)
            label.set(color=text_on(color), fontweight="bold")
            label.set_bbox({"boxstyle": "round,pad=0.35", "facecolor": color, "edgecolor": "none"})
        axes.tick_params(axis="y", length=0, pad=10)
        axes.set_ylim(len(timeline.ranks) - 0.48, -0.5)
        axes.set_xlim(0, whole * 1e3)
        names = ", ".join(dict.fromkeys(c.label for book in timeline.ledgers for c in book.calls()))
        axes.set_xlabel(f"ms from the first event  ·  calls: {names}")
        axes.grid(axis="x")
        axes.spines["left"].set_visible(False)
        axes.set_title(_title(timeline))
        return as_picture(figure, "timeline", _lane_words(timeline), measured=True)


def _lane(axes: Axes, lane: int, ledger: Ledger, begin: float, whole: float) -> None:
    """One rank: work and calls in one row, or in two if some overlap; messages below."""
    pixel = whole / 1500
    for span in _stretches(ledger):
        _stretch(axes, [(span.begin - begin, span.end - begin)], lane - 0.36, 0.3, PANEL)
        _name(axes, span.name, (span.begin - begin, span.end - begin), lane - 0.21, whole, INK)
    calls = [call for call in ledger.calls() if call.end is not None]
    color = rank_color(ledger.rank)
    times = merged(((c.begin - begin, (c.over or 0) - begin) for c in calls), pixel)
    _stretch(axes, times, lane - 0.04, 0.26, color)
    shown = 0.0
    for call in sorted(calls, key=lambda call: call.begin):
        # Calls under way at the same time share the lane; each is named where it is alone.
        stretch = (max(shown, call.begin - begin), (call.over or call.begin) - begin)
        _name(axes, call.label, stretch, lane + 0.09, whole, text_on(color))
        shown = max(shown, stretch[1])
    parts = [part for part in ledger.events if part.parent >= 0 and part.end is not None]
    for op, peer in sorted({(part.op, part.peer) for part in parts}):
        mine = [p for p in parts if (p.op, p.peer) == (op, peer)]
        times = merged(((p.begin - begin, (p.end or 0) - begin) for p in mine), pixel)
        _stretch(axes, times, lane + (0.23 if op == "send" else 0.32), 0.08, rank_color(peer))


def _title(timeline: Timeline) -> str:
    """What the colours mean, for the kinds of bars that this picture has."""
    events = [event for book in timeline.ledgers for event in book.events]
    kinds = {
        "work (grey)": any(_stretches(book) for book in timeline.ledgers),
        "calls (the rank's colour)": any(event.parent < 0 for event in events),
        "messages (thin, the peer's colour)": any(event.parent >= 0 for event in events),
    }
    words = ", ".join(kind for kind, drawn in kinds.items() if drawn)
    return words[:1].upper() + words[1:]


def _stretches(ledger: Ledger) -> list[Span]:
    """Spans that last; marks, which do not, have pictures of their own."""
    return [span for span in ledger.spans if span.end > span.begin]


def _stretch(
    axes: Axes, times: Sequence[tuple[float, float]], y: float, tall: float, color: str
) -> None:
    """Bars for (begin, end) in seconds, drawn in milliseconds."""
    bars = [(first * 1e3, (last - first) * 1e3) for first, last in times]
    axes.broken_barh(bars, (y, tall), facecolors=color, edgecolors=PAPER, linewidth=0.8)


def _name(
    axes: Axes, words: str, times: tuple[float, float], y: float, whole: float, color: str
) -> None:
    """The name of a stretch, where there is room for it."""
    if (times[1] - times[0]) / whole > 0.0115 * len(words):
        axes.text(sum(times) / 2 * 1e3, y, words, ha="center", va="center", color=color, fontsize=9)


def merged(times: Iterable[tuple[float, float]], pixel: float) -> list[tuple[float, float]]:
    """Stretches at least a pixel long; those less than a pixel apart are one."""
    return union((first, max(last, first + pixel)) for first, last in times)


def _lane_words(timeline: Timeline) -> str:
    """The lanes in words."""
    out = [
        f"Timeline of {len(timeline.ranks)} ranks over "
        f"{format_time(timeline.end - timeline.begin)}."
    ]
    for ledger in timeline.ledgers:
        busy = length(timeline.communication(ledger.rank))
        alone = timeline.exposed(ledger.rank)
        names = ", ".join(dict.fromkeys(call.label for call in ledger.calls()))
        work = ", ".join(dict.fromkeys(span.name for span in _stretches(ledger)))
        out.append(
            f"Rank {ledger.rank}: {names or 'no calls'}, {format_time(busy)} in all, "
            f"{format_time(alone)} of it beside no work{f' ({work})' if work else ''}."
        )
    return " ".join(out)
