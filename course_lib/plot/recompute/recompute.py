"""A training step that forgets activations and computes them again, beside one that keeps them.

Paper: Chen et al., "Training Deep Nets with Sublinear Memory Cost" (2016), section 4.1, as a film.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from course_lib.plot.player import svg
from course_lib.plot.player.player import Frame, Player
from course_lib.plot.player.style import ORANGE, SKY, VERMILLION, format_bytes, text_on
from course_lib.plot.player.unveil import Columns, legend
from course_lib.plot.recompute.recompute_plan import (
    AGAIN,
    BACKWARD,
    FORWARD,
    Action,
    Plan,
    Run,
    check_plan,
)
from course_lib.trace import Refusal

LEFT, WIDE, TOP, PANEL = 16, 768, 78, 200  # a plan has a panel of this height
TALL, CHART, FOOT = 30, 78, 84  # of a block; where a chart begins in its panel, and its height
AXIS = 60  # room for the bytes at the left of a chart
INPUT = 7  # width of the bar that stands for an input
LETTERS = {FORWARD: "F", AGAIN: "R", BACKWARD: "B"}


def recompute_steps(
    plans: Mapping[str, Plan], memories: Sequence[int], inputs: Sequence[int]
) -> Player:
    """A player of one training step under each plan, all on one clock, one change a frame.

    The clock counts forwards of one block; a backward takes two.

    Args:
        plans: name of a plan to its segments, (blocks, recomputed): neighbouring blocks, and
            whether they are forgotten and computed again; else all inside them is kept. Segments
            of `recompute.best_segments` are such. One to three plans.
        memories: bytes of each block's activations, 20 blocks at most.
        inputs: bytes of each block's input.

    Raises:
        Refusal: a plan does not have every block once, or there are too many to be drawn.
    """
    if not 1 <= len(plans) <= 3 or len(memories) > 20:
        raise Refusal(
            f"a picture of {len(plans)} plans for {len(memories)} blocks",
            "room for 1 to 3 plans and 20 blocks",
            "a block must be wide enough to be seen",
        )
    for name, plan in plans.items():
        check_plan(name, plan, memories, inputs)
    film = Film([Run(name, plan, memories, inputs) for name, plan in plans.items()])
    return Player(
        film.size,
        film.background(),
        film.places(),
        [film.frame(number) for number in range(len(film.times))],
        title=f"one training step of {len(memories)} blocks",
        alt=film.alt(),
        still=film.still(),
    )


class Film:
    """Moments of all plans on one clock, and where everything is drawn.

    Args:
        runs: the plans, carried out.
    """

    def __init__(self, runs: Sequence[Run]) -> None:
        self.runs = runs
        self.blocks = len(runs[0].memories)
        begins = {action.begin for run in runs for action in run.actions}
        self.last = max(run.end for run in runs)
        self.times = [-1, *sorted(begins), self.last]  # -1: before the first action
        self.most = max(1, *(run.peak(run.end) for run in runs))
        self.cell = min(56.0, WIDE / self.blocks)
        left = LEFT + AXIS
        self.columns = Columns(left, CHART, WIDE - AXIS, FOOT, self.last)
        self.size = (WIDE + 2 * LEFT, TOP + PANEL * len(runs) + 14)

    def places(self) -> list[svg.Point]:
        """Origins of the parts: heading, then for each plan numbers, blocks, peak and curtain."""
        tops = [TOP + PANEL * number for number in range(len(self.runs))]
        each = [
            [
                (LEFT + WIDE, top),
                *((self.x(b), top + 12) for b in range(self.blocks)),
                (0, top),
                (0, top),
            ]
            for top in tops
        ]
        return [(LEFT, 24), *(place for panel in each for place in panel)]

    def x(self, block: int) -> float:
        """Left edge of a block."""
        return LEFT + self.cell * block

    def still(self) -> int:
        """The frame in which the last plan holds the most for the first time."""
        run = self.runs[-1]
        peak = run.peak(run.end)
        return next(i for i, t in enumerate(self.times) if sum(run.held(run.now(t))) == peak)

    # --- what does not change ----------------------------------------------------------------
    def background(self) -> str:
        """Legend, names, numbers of blocks, and all charts as they are at the end."""
        words = "F: forward · R: forward again · B: backward"
        colors = {"input of a segment": ORANGE, "all inside a block": SKY, "nothing kept": ""}
        out = [legend(colors, LEFT, 46, 6.6)]
        out.append(svg.text(LEFT + WIDE, 47, words, size=11.5, anchor="end"))
        for number, run in enumerate(self.runs):
            panel = "".join([*self._names(run), *self._axis(), *self._chart(run)])
            out.append(f'<g transform="translate(0 {TOP + PANEL * number})">{panel}</g>')
        foot = self.size[1] - 8
        words = "time, in forwards of one block (a backward takes two); dashed: the peak so far"
        out.append(svg.text(self.columns.left, foot, words, kind="soft", size=11, anchor="start"))
        return "".join(out)

    def _names(self, run: Run) -> list[str]:
        """The plan's name, its blocks' numbers, and a line under each segment to be recomputed."""
        out = [svg.text(LEFT, 0, run.name, size=13.5, anchor="start", bold=True)]
        for block in range(self.blocks):
            x = self.x(block) + self.cell / 2
            out.append(svg.text(x, 24 + TALL, str(block), kind="soft", size=11))
        for blocks, recomputed in run.plan:
            if recomputed:
                ends = [(self.x(blocks.start) + 2, 60), (self.x(blocks.stop) - 4, 60)]
                out.append(svg.line(ends, width=1.5))
        return out

    def _axis(self) -> list[str]:
        """Bytes at the left, times below."""
        out, columns, foot = [], self.columns, CHART + FOOT
        step = 1 << (max(1, round(self.most / 3)) - 1).bit_length()
        for count in range(0, self.most + 1, step):
            y = self.y(count)
            out.append(
                svg.line(
                    [(columns.left, y), (columns.left + columns.width, y)],
                    kind="line-edge",
                    width=1,
                )
            )
            out.append(
                svg.text(columns.left - 8, y + 4, format_bytes(count), size=11, anchor="end")
            )
        for time in range(0, self.last + 1, next(s for s in (1, 2, 5, 10) if 16 * s > self.last)):
            out.append(svg.text(columns.x(time + 1), foot + 16, str(time), kind="soft", size=11))
        return out

    def y(self, count: int) -> float:
        """How far down in its panel a number of bytes is."""
        return CHART + FOOT * (1 - count / self.most)

    def _chart(self, run: Run) -> list[str]:
        """Bytes held over time: inputs, and on top of them what is inside blocks."""
        kept, both = [0], [0]
        for action in run.actions:
            inputs, inside = run.held(action)
            kept, both = [*kept, inputs], [*both, inputs + inside]
        return [self._area(run, both, SKY), self._area(run, kept, ORANGE)]

    def _area(self, run: Run, counts: Sequence[int], color: str) -> str:
        """What is under a curve of steps, one an action; the first count is before all of them."""
        foot, path = svg.number(self.y(0)), ""
        for action, before, count in zip(run.actions, counts, counts[1:], strict=False):
            if count != before:
                x, y = self.columns.x(action.begin + 1), self.y(count)
                path += f"H{svg.number(x)}V{svg.number(y)}"
        start, end = self.columns.left, svg.number(self.columns.x(run.end + 1))
        return f'<path d="M{svg.number(start)} {foot}{path}H{end}V{foot}Z" fill="{color}"/>'

    # --- what changes ------------------------------------------------------------------------
    def frame(self, number: int) -> Frame:
        """What goes on from one time to the next."""
        time, shown = self.times[number], self.until(number)
        words = f"time {self.moment(number)} of {self.last}" if number else "before the first block"
        parts = [svg.text(0, 0, words, size=15, anchor="start", bold=True)]
        for run in self.runs:
            action = run.now(time)
            parts += [self._numbers(run, time, action)]
            parts += [self._block(block, action) for block in range(self.blocks)]
            parts += [self._peak(run.peak(time)), self.columns.curtain(shown)]
        return Frame(tuple(parts), self._caption(number))

    def until(self, number: int) -> int:
        """The time at which a frame's actions end, which is where its curtain stands."""
        return 0 if number == 0 else [*self.times, self.last][number + 1]

    def moment(self, number: int) -> str:
        """`14 to 15`: from when to when a frame is; one number at the end."""
        begin, end = self.times[number], self.until(number)
        return f"{begin} to {end}" if begin < end else str(end)

    def _numbers(self, run: Run, time: int, action: Action | None) -> str:
        """What is held now, the most so far, and the forwards so far."""
        held, peak = format_bytes(sum(run.held(action))), format_bytes(run.peak(time))
        done, all_ = run.forwards(time), run.forwards(run.end)
        words = f"held {held} · peak so far {peak} · block forwards {done} of {all_}"
        return svg.text(0, 0, words, size=12.5, anchor="end", bold=True)

    def _block(self, block: int, action: Action | None) -> str:
        """A block in the colour of what is held of it, with a letter while it computes."""
        wide = self.cell - 3
        inside = action is not None and block in action.inside
        busy = action is not None and block == action.block
        out = [svg.box(0, 0, wide, TALL, fill=SKY if inside else "", kind="panel", radius=3)]
        if action is not None and block in action.inputs:
            out.append(svg.box(0, 0, INPUT, TALL, fill=ORANGE, radius=2))
        if action is not None and busy:
            out.append(svg.box(0, 0, wide, TALL, kind="ink-edge", edge=2.5, radius=3))
            color = text_on(SKY) if inside else ""
            x = (wide + INPUT * (block in action.inputs)) / 2
            out.append(
                svg.text(x, TALL / 2 + 5, LETTERS[action.kind], size=14, color=color, bold=True)
            )
        return "".join(out)

    def _peak(self, peak: int) -> str:
        """A line at the most held so far."""
        y, columns = self.y(peak), self.columns
        ends = [(columns.left, y), (columns.left + columns.width, y)]
        return svg.line(ends, color=VERMILLION, width=1.5, dashed=True) if peak else ""

    # --- words -------------------------------------------------------------------------------
    def _caption(self, number: int) -> str:
        """What each plan does, or what all of it came to."""
        time = self.times[number]
        if number == 0:
            return f"Before the first of {self.blocks} blocks: nothing is held."
        if time == self.last:
            return f"Done. {self._sums()}"
        told = " ".join(f"{run.name}: {said(run, time)}." for run in self.runs)
        return f"Time {self.moment(number)}. {told}"

    def _sums(self) -> str:
        """Peak, forwards and time of each plan, compared with those of the first."""
        first, out = self.runs[0], []
        for run in self.runs:
            words = (
                f"{run.name}: peak {format_bytes(run.peak(run.end))}, "
                f"{run.forwards(run.end)} block forwards, time {run.end}"
            )
            if run is not first:
                peak = run.peak(run.end) / max(1, first.peak(first.end))
                words += f" ({100 * peak:.0f} % of the memory, {100 * run.end / first.end:.0f} % "
                words += f"of the time of {first.name})"
            out.append(words + ".")
        return " ".join(out)

    def alt(self) -> str:
        """The plans and what they come to."""
        plans = " ".join(f"{run.name}: {_segments(run.plan)}." for run in self.runs)
        return (
            f"One training step of {self.blocks} blocks, 0 to {self.blocks - 1}: which activations "
            f"are held at each time, and how many bytes. {plans} {self._sums()}"
        )


def said(run: Run, time: int) -> str:
    """What a plan does at a time, in words."""
    action = run.now(time)
    if action is None:
        return "done"
    name, again = f"block {action.block}", action.block not in action.inside
    if action.kind == BACKWARD:
        return f"backward of {name}, then what is inside it is freed"
    if action.kind == AGAIN:
        return f"forward of {name} again, all inside it is kept now"
    if not again:
        return f"forward of {name}, all inside it is kept"
    kept = "its input is kept" if action.block in action.inputs else "nothing is kept"
    return f"forward of {name}, {kept}"


def _segments(plan: Plan) -> str:
    """`blocks 0 to 2 recomputed, block 3 kept`."""
    return ", ".join(
        (f"blocks {b.start} to {b.stop - 1} " if len(b) > 1 else f"block {b.start} ")
        + ("recomputed" if recomputed else "kept")
        for b, recomputed in plan
    )
