"""Schedules one above the other, whole and still: on one time scale, or simulated and measured.

Paper: Qi et al., "Zero Bubble Pipeline Parallelism" (2023), figures 2 and 3, from simulations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from course_lib.plot.player import svg
from course_lib.plot.player.picture import Picture
from course_lib.plot.schedule.grid import ROW, Grid, grid_legend
from course_lib.plot.schedule.measured import Measured, measured_schedule
from course_lib.plot.schedule.schedule_grid import arrows, messages, rank_words, sizes, summary
from course_lib.schedule import Simulation
from course_lib.trace import Refusal, Timeline

LEFT, WIDE, TOP, HEAD = 86, 580, 64, 34


def schedule_picture(*simulations: Simulation, title: str = "") -> Picture:
    """Whole schedules, one above the other on one time scale.

    Over each: its makespan and bubble. At the right of each row: how many forwards' activations the
    rank holds at most; of a rank with v chunks, an activation is that of 1/v of its layers.

    Args:
        simulations: what `simulate` returned, at least one.
        title: what it is, in a few words; by default the schedule's name and sizes.

    Raises:
        Refusal: there is no simulation.
    """
    if not simulations:
        raise Refusal("a picture of schedules", "none", "there is nothing to draw")
    until = max(simulation.makespan for simulation in simulations)
    return _stacked(simulations, [until] * len(simulations), title)


def simulated_and_measured(
    simulation: Simulation, timeline: Timeline, how: str = "measured"
) -> Picture:
    """A simulated schedule and below it a run of it, each as wide as the picture, with messages.

    Args:
        simulation: what `simulate` returned, in tF.
        timeline: ledgers of a run, with a span for every action; the last run is drawn, in ms.
        how: what the run is, for the headings, if it is not a measured one.

    Raises:
        Refusal: no span is named like an action.
        ScheduleError: the spans are not a whole run.
    """
    run = measured_schedule(timeline)
    both = (simulation, replace(run, schedule=replace(run.schedule, name=how)))
    title = f"{simulation.schedule.name} on paper, and {how}"
    return _stacked(both, [one.makespan for one in both], title, sent=True)


def _stacked(
    simulations: Sequence[Simulation], scales: Sequence[float], title: str, *, sent: bool = False
) -> Picture:
    """Grids one above the other, each with the time at its right edge."""
    y, body, alt = float(TOP), [], []
    for simulation, until in zip(simulations, scales, strict=True):
        grid = Grid(simulation, LEFT, y + HEAD, WIDE, until, gap=18.0 if sent else 6.0)
        body += [_head(simulation, y), grid.draw(), _held(grid)]
        if sent:
            body.append(arrows(grid, messages(simulation), width=1.0))
        alt.append(f"{sizes(simulation)}: {summary(simulation)}; {rank_words(simulation)}.")
        y = grid.foot + 34
    title = title or ", ".join(simulation.schedule.name for simulation in simulations)
    head = svg.text(16, 24, title, size=15, anchor="start", bold=True)
    body = [head, grid_legend(tuple(simulations), 16, 48), *body]
    body.append(
        svg.text(
            LEFT,
            y,
            "bubble: time waited ÷ time worked; held: forwards whose activations are kept",
            size=11,
            kind="soft",
            anchor="start",
        )
    )
    alt_text = f"{title}. {' '.join(alt)}"
    measured = any(isinstance(simulation, Measured) for simulation in simulations)
    return Picture(
        svg.document(800, y + 12, "".join(body), alt_text), alt_text, title, measured=measured
    )


def _head(simulation: Simulation, y: float) -> str:
    """The name of a schedule and its sums."""
    schedule = simulation.schedule
    words = f"{schedule.name}, p = {schedule.ranks}, m = {schedule.micro_batches}"
    words += f", v = {schedule.stages // schedule.ranks}" * (schedule.stages > schedule.ranks)
    name = svg.text(16, y + 22, words, size=13, anchor="start", bold=True)
    sums = svg.text(LEFT + WIDE, y + 22, summary(simulation), size=12, anchor="end")
    return (
        name
        + sums
        + svg.text(LEFT + WIDE + 12, y + 22, "held, at most", size=11, kind="soft", anchor="start")
    )


def _held(grid: Grid) -> str:
    """The most activations each rank holds, at the right of its row."""
    schedule = grid.simulation.schedule
    chunks = schedule.stages // schedule.ranks
    of = f" × 1/{chunks}" if chunks > 1 else ""
    return "".join(
        svg.text(
            LEFT + WIDE + 12,
            grid.y(rank) + ROW / 2 + 4,
            f"{grid.simulation.in_flight(rank)}{of}",
            size=12,
            anchor="start",
            bold=True,
        )
        for rank in range(schedule.ranks)
    )
