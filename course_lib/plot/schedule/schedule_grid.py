"""A schedule in time, moment by moment: who runs what, who waits for whom, what each rank holds.

Paper: Narayanan et al., "Megatron-LM" (2021), figures 3 and 4, drawn from a simulation.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence

from course_lib.plot.player import svg
from course_lib.plot.player.player import Frame, Player
from course_lib.plot.player.style import GREY, VERMILLION
from course_lib.plot.schedule.grid import ROW, Clock, Grid, grid_legend, short
from course_lib.plot.schedule.measured import Measured, Message
from course_lib.schedule import Action, Simulation, Slot
from course_lib.trace import Refusal

LEFT, WIDE, TOP = 86, 500, 84  # the grid; to its right is what each rank does and holds
NOW, HELD = LEFT + WIDE + 14, LEFT + WIDE + 116
BAR = 62


def schedule_grid(
    simulation: Simulation, title: str = "", most: int = 60, at: float | None = None
) -> Player:
    """A player over the moments of a schedule: one frame for each time an action begins or ends.

    What has not begun yet is pale. At the right of each row: what the rank does, how many forwards'
    activations it holds, and how many messages for it are under way (sent and not yet used).

    Args:
        simulation: what `simulate` returned, or `measured_schedule`.
        title: for the heading; by default the schedule's name and sizes.
        most: frames at most; of more moments, evenly chosen ones are shown.
        at: the time that it opens at; by default the end.

    Raises:
        Refusal: `most` is below 2, or `at` is before the first moment.
    """
    if most < 2:
        raise Refusal(
            f"{most} frames",
            f"{len(_moments(simulation))} moments",
            "the first and the last moment are always shown",
        )
    stage = Stage(simulation, title or sizes(simulation))
    moments = _moments(simulation)
    if at is not None and _less(at, moments[0]):
        raise Refusal(f"the time {at:g}", f"{moments[0]:g} is the first", "nothing is drawn there")
    count = min(most, len(moments))
    chosen = [moments[round(i * (len(moments) - 1) / max(1, count - 1))] for i in range(count)]
    return Player(
        stage.size,
        stage.background(),
        stage.places(),
        [stage.frame(time) for time in chosen],
        title=stage.title,
        alt=stage.alt(),
        still=count - 1 if at is None else bisect_right(chosen, at + 1e-9) - 1,
    )


def sizes(simulation: Simulation) -> str:
    """`1F1B on 4 ranks, 8 micro-batches, 2 chunks a rank`."""
    schedule = simulation.schedule
    chunks = schedule.stages // schedule.ranks
    some = f", {chunks} chunks a rank" if chunks > 1 else ""
    ranks, micros = _many(schedule.ranks, "rank"), _many(schedule.micro_batches, "micro-batch")
    return f"{schedule.name} on {ranks}, {micros}{some}"


def summary(simulation: Simulation) -> str:
    """`makespan 33 tF, bubble 37.5%`: the bubble is time waited divided by time worked."""
    makespan = Clock.of(simulation).write(simulation.makespan)
    return f"makespan {makespan}, bubble {short(100 * simulation.bubble)}%"


def rank_words(simulation: Simulation) -> str:
    """For each rank, how long it waits and how many activations it holds at most."""
    clock = Clock.of(simulation)
    return "; ".join(
        f"rank {rank} waits {clock.write(simulation.idle(rank))} and holds at most "
        f"{simulation.in_flight(rank)} activations"
        for rank in range(simulation.schedule.ranks)
    )


def messages(simulation: Simulation) -> list[Message]:
    """Every result that one rank makes for another; of a run, what was recorded."""
    if isinstance(simulation, Measured) and simulation.messages:
        return list(simulation.messages)
    schedule = simulation.schedule
    home, begin = schedule.placement, {}
    for line in simulation.slots:
        begin.update({slot.action: slot.begin for slot in line})
    out = []
    for rank, line in enumerate(simulation.slots):
        for slot in line:
            user = schedule.used_by.get(slot.action)
            if user is not None and home[user.stage] != rank:
                out.append(Message(rank, home[user.stage], slot.end, begin[user]))
    return out


class Stage:
    """Where everything is, and what is so at a time.

    Args:
        simulation: the schedule in time.
        title: the heading.
    """

    def __init__(self, simulation: Simulation, title: str) -> None:
        self.simulation, self.title = simulation, title
        self.clock = Clock.of(simulation)
        self.ranks = range(simulation.schedule.ranks)
        self.chunks = simulation.schedule.stages // len(self.ranks)
        self.grid = Grid(simulation, LEFT, TOP, WIDE, simulation.makespan, gap=14)
        self.messages = messages(simulation)
        self.held = [simulation.held(rank) for rank in self.ranks]
        self.most = max(simulation.in_flight(rank) for rank in self.ranks)
        self.ends = {slot.action: slot.end for line in simulation.slots for slot in line}
        self.size = (800, self.grid.foot + 32)

    def places(self) -> list[svg.Point]:
        """Origins of the parts: time, veil and marks, then of all ranks work, messages, held."""
        columns = [(x, self.grid.y(rank)) for x in (NOW, NOW, HELD) for rank in self.ranks]
        return [(NOW, 24), (0, 0), *columns]

    def background(self) -> str:
        """The title, the whole grid and the heads of the columns."""
        head = svg.text(16, 24, self.title, size=15, anchor="start", bold=True)
        out = [head, grid_legend((self.simulation,), 16, 50), self.grid.draw()]
        of = f", × 1/{self.chunks}" if self.chunks > 1 else ""
        out += [
            svg.text(x, TOP - 10, words, size=11, kind="soft", anchor="start")
            for x, words in ((NOW, "now"), (HELD, f"held{of}"))
        ]
        return "".join(out)

    # --- what is so at a time ------------------------------------------------------------------
    def running(self, rank: int, time: float) -> Slot | None:
        """The action a rank is busy with just after a time."""
        slots = self.simulation.slots[rank]
        running = (slot for slot in slots if _less(time, slot.end) and not _less(time, slot.begin))
        return next(running, None)

    def next_one(self, rank: int, time: float) -> Slot | None:
        """The first action of a rank that begins after a time."""
        return next((s for s in self.simulation.slots[rank] if _less(time, s.begin)), None)

    def cause(self, action: Action) -> Action | None:
        """The last of what an action needs from other actions."""
        needs = [a for group in action.needs(self.simulation.schedule.stages) for a in group]
        return max((a for a in needs if a in self.ends), key=self.ends.__getitem__, default=None)

    def count(self, rank: int, time: float) -> int:
        """How many activations a rank holds just after a time."""
        held = self.held[rank]
        return held[i - 1][1] if (i := bisect_right(held, time + 1e-9, key=lambda h: h[0])) else 0

    def does(self, rank: int, time: float) -> str:
        """`runs 0F3`, `waits for 1B0` or `done`."""
        if slot := self.running(rank, time):
            return f"runs {slot.action}"
        if not (slot := self.next_one(rank, time)):
            return "done"
        return f"waits for {cause}" if (cause := self.cause(slot.action)) else "waits"

    def flying(self, time: float) -> list[Message]:
        """Messages made by a time and not used before it."""
        return [m for m in self.messages if not _less(time, m.sent) and not _less(m.used, time)]

    # --- what changes --------------------------------------------------------------------------
    def frame(self, time: float) -> Frame:
        """The moment at a time, after all that ends or begins then."""
        head = svg.text(0, 0, f"at {self.clock.write(time)}", size=15, anchor="start", bold=True)
        flying = self.flying(time)
        inbox = [
            sum(m.receiver == rank and _less(time, m.used) for m in flying) for rank in self.ranks
        ]
        columns = [_work(self.does(rank, time)) for rank in self.ranks]
        columns += [
            svg.text(0, 30, f"{_many(count, 'message')} to it", size=11, anchor="start")
            if count
            else ""
            for count in inbox
        ]
        columns += [self._held(self.count(rank, time)) for rank in self.ranks]
        return Frame((head, self._marks(time, flying), *columns), self.caption(time))

    def _held(self, count: int) -> str:
        """A bar as long as what is held, and the number."""
        out = svg.text(0, ROW / 2 + 4, str(count), size=12, anchor="start", bold=True)
        if count:
            out += svg.box(20, 8, BAR * count / self.most - 0.5, ROW - 16, fill=GREY, radius=1)
        return out

    def _marks(self, time: float, flying: list[Message]) -> str:
        """The veil over what is to come, a frame round what runs, messages, and the line of now."""
        grid, x = self.grid, self.grid.x(time)
        busy = [(rank, slot) for rank in self.ranks if (slot := self.running(rank, time))]
        out, foot = [], grid.foot
        if LEFT + WIDE - x > 0.5:
            # What runs is a hole in the veil: it can be read to its end.
            veil = f"M{svg.number(x)} {TOP - 1}H{LEFT + WIDE + 1}V{svg.number(foot + 1)}"
            veil += f"H{svg.number(x)}z" + "".join(self._rest(*pair, time) for pair in busy)
            out.append(f'<path class="paper" opacity=".74" fill-rule="evenodd" d="{veil}"/>')
        if busy:
            path = "".join(grid.outline(*pair) for pair in busy)
            out.append(f'<path class="ink-edge" stroke-width="1.8" d="{path}"/>')
        out.append(svg.line([(x, TOP - 6), (x, foot + 4)], color=VERMILLION, width=1.5))
        return "".join(out) + arrows(grid, flying)

    def _rest(self, rank: int, slot: Slot, time: float) -> str:
        """The part of a box that is still to come, as a piece of a path."""
        return self.grid.outline(rank, Slot(slot.action, max(slot.begin, time), slot.end))

    # --- words ---------------------------------------------------------------------------------
    def caption(self, time: float) -> str:
        """What begins, who waits for what, and what is under way."""
        line = [
            slot.action
            for slots in self.simulation.slots
            for slot in slots
            if abs(slot.begin - time) < 1e-9
        ]
        doing = [self.does(rank, time) for rank in self.ranks]
        waiting = [
            f"rank {r}{words.removeprefix('waits')}"
            for r, words in enumerate(doing)
            if words[0] == "w"
        ]
        under_way = sum(_less(time, m.used) for m in self.flying(time))
        if all(words == "done" for words in doing):
            return f"At {self.clock.write(time)}: all ranks are done: {summary(self.simulation)}."
        begins = f"{', '.join(map(str, line))} begin{'s' if len(line) == 1 else ''}. " * bool(line)
        wait = f"{len(waiting)} of {_many(len(doing), 'rank')} wait"
        wait += f": {', '.join(waiting)}" if waiting else ""
        done = doing.count("done")
        return (
            f"At {self.clock.write(time)}: {begins}{wait}."
            + (f" {_many(done, 'rank')} done." if done else "")
            + f" {_many(under_way, 'message')} under way."
        )

    def alt(self) -> str:
        """The whole schedule: sums, ranks, and the order of the actions if they are few."""
        simulation = self.simulation
        out = f"{self.title}: {summary(simulation)}; {rank_words(simulation)}."
        if len(self.ends) <= 200:
            lines = str(simulation.schedule).splitlines()
            out += " In order: " + "; ".join(f"rank {r}: {s}" for r, s in enumerate(lines)) + "."
        return out


def _work(words: str) -> str:
    """What a rank does; waiting is grey."""
    busy = words.startswith("runs")
    return svg.text(
        0, 14, words, size=12, anchor="start", kind="ink" if busy else "soft", bold=busy
    )


def arrows(grid: Grid, messages: Sequence[Message], width: float = 1.6) -> str:
    """Messages as two paths, of all shafts and of all heads."""
    shafts, heads = "", ""
    for (x0, y0), (x1, y1) in (_way(grid, message) for message in messages):
        span = math.hypot(x1 - x0, y1 - y0)
        dx, dy = (x1 - x0) / span, (y1 - y0) / span
        long = 5 * width
        x, y = x1 - long * dx, y1 - long * dy
        corners = (
            (x1, y1),
            (x - long / 2 * dy, y + long / 2 * dx),
            (x + long / 2 * dy, y - long / 2 * dx),
        )
        shafts += f"M{svg.number(x0)} {svg.number(y0)}L{svg.number(x)} {svg.number(y)}"
        heads += f"M{'L'.join(f'{svg.number(a)} {svg.number(b)}' for a, b in corners)}z"
    if not shafts:
        return ""
    return (
        f'<path class="ink-edge" stroke-width="{width:g}" d="{shafts}"/>'
        f'<path class="ink" d="{heads}"/>'
    )


def _way(grid: Grid, message: Message) -> tuple[svg.Point, svg.Point]:
    """From the end of what made a message to the begin of what needs it."""
    down = message.receiver > message.sender
    first, last = (ROW, -0.5) if down else (0.0, ROW + 0.5)
    # One that is used at once goes straight up or down, and may meet one that goes back.
    aside = 0.0 if _less(message.sent, message.used) else -6.0 if down else 6.0
    return (
        (grid.x(message.sent) + aside, grid.y(message.sender) + first),
        (grid.x(message.used) + aside, grid.y(message.receiver) + last),
    )


def _moments(simulation: Simulation) -> list[float]:
    """Every time an action begins or ends."""
    times = (t for line in simulation.slots for slot in line for t in (slot.begin, slot.end))
    return sorted({round(time, 9) for time in times})


def _less(first: float, second: float) -> bool:
    """Whether a time is before another; times are sums, so their last digits do not count."""
    return first < second - 1e-9


def _many(count: int, thing: str) -> str:
    return f"{count} {thing}{'' if count == 1 else 'es' if thing.endswith('ch') else 's'}"
