"""A trace read in four looks: what happened, what it cost, who waited, the critical path."""

from __future__ import annotations

from collections.abc import Iterable

from course_lib.plot.player import svg
from course_lib.plot.player.figure import nothing_recorded
from course_lib.plot.player.player import Frame, Player
from course_lib.plot.player.style import GREEN, PURPLE, VERMILLION, format_time, rank_color, text_on
from course_lib.trace import Explanation, Trace, explain
from course_lib.trace.analysis.meetings import waits
from course_lib.trace.intervals import Interval, intersect, union

LEFT, TOP, WIDE, LANE = 78.0, 52.0, 690.0, 62.0
FOOT = 40.0  # below the lanes: the axis
NARROW = 1.2  # pixels; what is narrower is drawn so wide
KINDS = {"compute": "", "communication": VERMILLION, "copy": PURPLE}


def trace_steps(trace: Trace) -> Player:
    """A player with four frames, each a look at the same trace.

    Args:
        trace: of all ranks; one step of a longer one is `trace.cut(*trace.steps()["step 3"])`.

    Raises:
        Refusal: nothing was recorded.
    """
    if not trace.ranks or trace.seconds <= 0:
        raise nothing_recorded("a trace", "no stretch with a duration")
    drawing = TraceDrawing(trace)
    frames = [drawing.happened(), drawing.counted(), drawing.waited(), drawing.critical()]
    return Player(
        drawing.size,
        drawing.background(),
        [(0, 0)],
        frames,
        title=f"a trace of {len(trace.ranks)} ranks",
        alt=" ".join(frame.caption for frame in frames),
        still=1,
    )


class TraceDrawing:
    """Where the lanes are, and what each look puts on them.

    Args:
        trace: what is drawn.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.found: Explanation = explain(trace)
        self.lane = {rank: TOP + LANE * place for place, rank in enumerate(trace.ranks)}
        self.size = (LEFT + WIDE + 22, TOP + LANE * len(trace.ranks) + FOOT)

    def background(self) -> str:
        """Ranks at the left, milliseconds below."""
        out = []
        bottom = TOP + LANE * len(self.lane)
        for rank, y in self.lane.items():
            color = rank_color(rank)
            out.append(svg.pill(LEFT - 42, y + 22, f"rank {rank}", color, text_on(color)))
        for tick in ticks(self.trace.seconds):
            x = LEFT + WIDE * tick / self.trace.seconds
            out.append(svg.line([(x, TOP - 4), (x, bottom)], kind="line-edge", width=1))
            out.append(svg.text(x, bottom + 16, f"{tick * 1e3:g}", kind="soft", size=11))
        out.append(svg.text(LEFT + WIDE / 2, bottom + 33, "ms", kind="soft", size=11))
        return "".join(out)

    # --- the four looks --------------------------------------------------------------------------
    def happened(self) -> Frame:
        """Work and calls as they were recorded."""
        head = _heading("What happened: work (grey), below it calls (the rank's colour)")
        out = [head, *self._recorded()]
        names = dict.fromkeys(call.name for call in self.trace.calls())
        return Frame(
            ("".join(out),),
            f"{len(self.lane)} ranks, {format_time(self.trace.seconds)}. Calls: "
            f"{', '.join(names) or 'none'}. What overlaps must not be counted twice.",
        )

    def counted(self) -> Frame:
        """Each moment once; below, what was hidden."""
        head = _heading("Each moment counted once (grey: work)")
        out = [
            head,
            _key(350, VERMILLION, "exposed communication"),
            _key(530, PURPLE, "copies"),
            _key(602, GREEN, "hidden communication"),
        ]
        for rank, y in self.lane.items():
            for kind, fill in KINDS.items():
                mine = [when for what, when in self.trace.doing(rank) if what == kind]
                out += self._bars(mine, y, 30, fill=fill)
            work, calls = self.trace.of(rank, "compute"), self.trace.of(rank, "communication")
            out += self._bars(intersect(calls, work), y + 34, 9, fill=GREEN)
        worst = max(self.found.shares, key=lambda share: share.exposed)
        return Frame(
            ("".join(out),),
            f"Exposed communication is {self.found.exposed_share:.0%} of the ranks' time, most on "
            f"rank {worst.rank}: {format_time(worst.exposed)}. What is hidden adds no time of its "
            "own.",
        )

    def waited(self) -> Frame:
        """In every call, how long a rank was there before the last one came."""
        out = [_heading("Waiting for the last: in the colour of the rank that was waited for")]
        lost: dict[int, dict[int, list[Interval]]] = {rank: {} for rank in self.lane}
        for wait in waits(self.trace):
            lost[wait.rank].setdefault(wait.last, []).extend(wait.times)
        for rank, y in self.lane.items():
            out += self._bars(self.trace.of(rank, "compute"), y, 20)
            for last, times in lost[rank].items():
                out += self._bars(times, y + 23, 20, fill=rank_color(last))
        straggler = self.found.straggler
        if straggler is None:
            said = "Nobody waited for anybody."
        else:
            said = (
                f"The straggler is rank {straggler.rank}: the others waited for it, "
                f"{format_time(straggler.seconds)} in total."
            )
        return Frame(("".join(out),), said)

    def critical(self) -> Frame:
        """The one chain of work and calls that the step could not be shorter than."""
        head = _heading("The critical path: only what lies on it, made shorter, shortens the step")
        out = [head, *self._recorded()]
        points: list[svg.Point] = []
        on = dict.fromkeys(self.lane, 0.0)
        for segment in self.found.path:
            on[segment.rank] += segment.seconds
            if segment.seconds * WIDE > NARROW * self.trace.seconds:
                y = self.lane[segment.rank] + (10 if segment.what in (*KINDS, "idle") else 33)
                points += [(self._x(segment.begin), y), (self._x(segment.end), y)]
        out.append(svg.line(points, kind="ink-edge", width=3))
        most = max(on, key=on.__getitem__)
        parts: dict[str, float] = {}
        for segment in self.found.path:
            parts[segment.what] = parts.get(segment.what, 0.0) + segment.seconds
        said = ", ".join(f"{what} {format_time(long)}" for what, long in parts.items())
        return Frame(
            ("".join(out),),
            f"{on[most] / self.trace.seconds:.0%} of the critical path is on rank {most}. "
            f"The whole path: {said}.",
        )

    # --- marks -----------------------------------------------------------------------------------
    def _recorded(self) -> list[str]:
        """Work and calls of all ranks."""
        out = []
        for rank, y in self.lane.items():
            out += self._bars(self.trace.of(rank, "compute"), y, 20)
            calls = self.trace.of(rank, "communication")
            out += self._bars(calls, y + 23, 20, fill=rank_color(rank))
        return out

    def _x(self, moment: float) -> float:
        return LEFT + WIDE * (moment - self.trace.begin) / self.trace.seconds

    def _bars(self, times: Iterable[Interval], y: float, tall: float, fill: str = "") -> list[str]:
        """Bars of a colour, or grey."""
        pixel = self.trace.seconds / WIDE
        near = union((begin, max(end, begin + NARROW * pixel)) for begin, end in times)
        return [
            svg.box(
                self._x(begin), y, (end - begin) / pixel, tall, fill=fill, kind="line", radius=1
            )
            for begin, end in near
        ]


def ticks(seconds: float) -> list[float]:
    """Four to eight round moments from 0 on."""
    step = 10.0**-9
    while seconds / step > 8:
        for factor in (2.0, 2.5, 2.0):
            step *= factor
            if seconds / step <= 8:
                break
    return [step * n for n in range(int(seconds / step) + 1)]


def _heading(words: str) -> str:
    return svg.text(16, 26, words, anchor="start", bold=True, size=13)


def _key(x: float, color: str, words: str) -> str:
    return svg.box(x, 17, 12, 11, fill=color, radius=2) + svg.text(
        x + 17, 26, words, anchor="start", size=12
    )
