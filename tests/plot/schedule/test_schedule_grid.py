"""Pipeline grids: boxes are those of the schedule, in proportion to time; words are its numbers."""

from __future__ import annotations

import re
import sys
from collections import Counter

import pytest

from course_lib.plot import (
    measured_schedule,
    schedule_explorer,
    schedule_grid,
    schedule_picture,
    simulated_and_measured,
)
from course_lib.plot.player.explorer import Explorer
from course_lib.plot.player.style import ROLE_STYLE
from course_lib.plot.schedule.grid import COLORS, Clock, nice_step, tint
from course_lib.plot.schedule.schedule_explorer import START, Controls, explore, reason
from course_lib.plot.schedule.schedule_grid import messages
from course_lib.schedule import (
    SCHEDULES,
    Action,
    Costs,
    Schedule,
    ScheduleError,
    Simulation,
    dualpipe_v,
    gpipe,
    interleaved_1f1b,
    one_f_one_b,
    simulate,
    zb_h1,
    zb_v,
)
from course_lib.trace import Event, Ledger, Refusal, Span, Timeline

KIND_OF = {tint(color, c, v): kind for kind, color in COLORS.items() for v in (1, 2, 3, 4)
           for c in range(v)}  # fmt: skip
HALF = Costs(0.5, 0.5, 0.5)


def boxes(svg: str) -> list[tuple[str, float, float, float, float]]:
    """Kind, left, upper edge, width and height of every action's box."""
    out = []
    for color, path in re.findall(r'<path fill="(#\w+)" d="([^"]+)"/>', svg):
        for found in re.findall(r"M([\d.]+) ([\d.]+)h([\d.]+)v([\d.]+)", path):
            out.append((KIND_OF[color], *map(float, found)))
    return out


def recorded(simulation: Simulation, *, start: float = 1000.0, runs: int = 1) -> Timeline:
    """Ledgers whose spans are the slots, a millisecond a tF, with other work between them."""
    ledgers = [Ledger(rank) for rank in range(simulation.schedule.ranks)]
    for number in range(runs):
        at = start + number
        for ledger, line in zip(ledgers, simulation.slots, strict=True):
            for slot in line:
                begin, end = at + slot.begin * 1e-3, at + slot.end * 1e-3
                ledger.spans.append(Span(ledger.rank, str(slot.action), begin, end))
                ledger.spans.append(Span(ledger.rank, "optimizer step", end, end + 1e-5))
    return Timeline(ledgers)


# --- the grid ------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "simulation",
    [
        simulate(gpipe(2, 3)),
        simulate(one_f_one_b(4, 8), Costs(1, 0.5, 2, 0.25)),
        simulate(interleaved_1f1b(3, 6, 3), HALF),
        simulate(zb_h1(3, 5)),
        simulate(zb_v(2, 4), HALF),
        simulate(dualpipe_v(2, 5), HALF),
        simulate(one_f_one_b(1, 1)),
    ],
    ids=lambda simulation: simulation.schedule.name,
)
def test_there_is_a_box_for_each_action_in_proportion_to_its_time(simulation):
    drawn = boxes(schedule_picture(simulation).svg)
    slots = [slot for line in simulation.slots for slot in line]
    assert Counter(box[0] for box in drawn) == Counter(slot.action.kind for slot in slots)
    left, pixel = 86, 580 / simulation.makespan
    rows = sorted({y - {"F": 0, "W": 8}.get(kind, 4) for kind, _, y, _, _ in drawn})
    assert len(rows) == simulation.schedule.ranks
    seen = {(rows.index(y - {"F": 0, "W": 8}.get(kind, 4)), kind, x): wide
            for kind, x, y, wide, _ in drawn}  # fmt: skip
    for rank, line in enumerate(simulation.slots):
        for slot in line:
            near = [(x, wide) for (r, kind, x), wide in seen.items() if (r, kind) == (
                rank, slot.action.kind) and abs(x - left - slot.begin * pixel) < 0.06]  # fmt: skip
            assert len(near) == 1
            assert near[0][1] == pytest.approx((slot.end - slot.begin) * pixel - 0.7, abs=0.06)


def test_boxes_say_their_letter_and_micro_batch():
    svg = schedule_picture(simulate(one_f_one_b(2, 3))).svg
    words = re.findall(r"<tspan[^>]*>(\w+)</tspan>", svg)
    pairs = Counter(zip(words[::2], words[1::2], strict=True))
    assert pairs == Counter({(kind, micro): 2 for kind in "FB" for micro in "012"})


def test_kinds_differ_in_colour_and_in_shape_and_chunks_in_colour():
    assert len({*COLORS.values()}) == 4
    assert len({tint(COLORS["F"], chunk, 4) for chunk in range(4)}) == 4
    shapes = {kind: tall for kind, _, _, _, tall in boxes(schedule_picture(
        simulate(zb_h1(2, 2))).svg)}  # fmt: skip
    assert shapes["W"] < shapes["I"]
    grid = schedule_picture(simulate(interleaved_1f1b(2, 2, 2), HALF)).svg
    assert "lighter: a later chunk" in grid
    assert len(re.findall(r'<path fill="#\w+"', grid)) == 2 * 2 * 2  # ranks, kinds, chunks


def test_the_axis_has_round_steps():
    assert [nice_step(x) for x in (0.03, 0.9, 1, 1.1, 2.5, 7, 44)] == [0.05, 1, 1, 2, 5, 10, 50]


# --- the still picture -----------------------------------------------------------------------
def test_several_schedules_share_one_scale_and_each_has_its_sums():
    both = schedule_picture(simulate(gpipe(4, 8)), simulate(zb_h1(4, 8)))
    first = [box for box in boxes(both.svg) if box[0] == "F"]
    assert len({wide for _, _, _, wide, _ in first}) == 1  # a tF is as long in both
    for words in ("makespan 33 tF, bubble 37.5%", "makespan 27 tF, bubble 12.5%"):
        assert words in both.svg and words in both.alt
    assert "rank 3 waits 9 tF and holds at most 8 activations" in both.alt
    assert not both.measured and 'width="800"' in both.svg


def test_what_ranks_hold_is_written_beside_them():
    svg = schedule_picture(simulate(one_f_one_b(4, 8))).svg
    assert re.findall(r'x="678" y="[\d.]+" font-size="12"[^>]*>(\w+)<', svg) == list("4321")
    svg = schedule_picture(simulate(interleaved_1f1b(2, 4, 2), HALF)).svg
    assert re.findall(r">(\d+) × 1/2<", svg) == ["5", "3"]


def test_no_schedule_is_refused():
    with pytest.raises(ValueError, match="nothing to draw"):
        schedule_picture()


# --- the player ------------------------------------------------------------------------------
def test_a_frame_a_moment_says_who_runs_waits_and_holds():
    simulation = simulate(one_f_one_b(4, 8))
    player = schedule_grid(simulation)
    times = sorted({t for line in simulation.slots for s in line for t in (s.begin, s.end)})
    assert len(player.frames) == len(times) and player.still == len(times) - 1
    at_7 = player.frames[times.index(7)]
    assert at_7.caption == (
        "At 7 tF: 3B1 begins. 2 of 4 ranks wait: rank 0 for 1B0, rank 1 for 2B0. "
        "2 messages under way."
    )
    _, _, *columns = at_7.parts
    assert [re.findall(">([^<]+)<", part)[0] for part in columns[:4]] == [
        "waits for 1B0", "waits for 2B0", "runs 2B0", "runs 3B1"]  # fmt: skip
    assert ["1 message to it" in part for part in columns[4:8]] == [False, True, True, False]
    for frame, time in zip(player.frames, times, strict=True):
        held = [int(re.findall(">(\\d+)<", part)[0]) for part in frame.parts[-4:]]
        assert held == [
            ([0] + [count for when, count in simulation.held(rank) if when <= time])[-1]
            for rank in range(4)
        ]
    assert player.frames[-1].caption == (
        "At 33 tF: all ranks are done: makespan 33 tF, bubble 37.5%."
    )


def test_the_description_has_the_sums_and_the_order():
    alt = schedule_grid(simulate(one_f_one_b(2, 2))).alt
    assert alt.startswith("1F1B on 2 ranks, 2 micro-batches: makespan 9 tF, bubble 50%; rank 0 ")
    assert alt.endswith("In order: rank 0: 0F0 0F1 0B0 0B1; rank 1: 1F0 1B0 1F1 1B1.")


def test_messages_are_those_between_ranks():
    simulation = simulate(one_f_one_b(3, 4), Costs(message=0.5))
    found = messages(simulation)
    assert len(found) == 2 * 2 * 4  # 2(p-1) a micro-batch
    assert all(abs(m.sender - m.receiver) == 1 and m.used - m.sent >= 0.5 for m in found)
    assert len(messages(simulate(zb_v(3, 5)))) == 2 * 4 * 5  # 2p-1 hops less the one that stays
    times = sorted({t for line in simulation.slots for s in line for t in (s.begin, s.end)})
    for frame, time in zip(schedule_grid(simulation).frames, times, strict=True):
        flying = sum(m.sent <= time <= m.used for m in found)
        # Each has a shaft and a head of two more sides; the line of now is one stroke.
        assert frame.parts[1].count("L") == 1 + 3 * flying


def test_more_moments_than_frames_are_thinned_to_the_first_and_last():
    player = schedule_grid(simulate(one_f_one_b(4, 8)), most=9)
    assert len(player.frames) == 9
    assert player.frames[0].caption.startswith("At 0 tF: 0F0 begins.")
    assert "done" in player.frames[-1].caption
    with pytest.raises(ValueError, match="asked: 1 frames"):
        schedule_grid(simulate(gpipe(1, 1)), most=1)


@pytest.mark.parametrize("kind", SCHEDULES)
def test_players_are_small_and_the_same_each_time(kind):
    simulation = simulate(SCHEDULES[kind](4, 8, 2), HALF)
    html = schedule_grid(simulation)._repr_html_()
    assert html == schedule_grid(simulation)._repr_html_()
    assert len(html) < 150_000 and ' id="' not in html


def test_it_opens_at_the_time_that_is_asked_for():
    simulation = simulate(one_f_one_b(2, 2))
    player = schedule_grid(simulation, at=3.5)
    assert player.frames[player.still].caption.startswith("At 2 tF")  # where 1B0 begins
    with pytest.raises(Refusal, match="the time -1"):
        schedule_grid(simulation, at=-1)


# --- runs --------------------------------------------------------------------------------------
def test_a_recorded_run_is_the_same_grid_in_milliseconds():
    simulation = simulate(zb_h1(3, 4))
    run = measured_schedule(recorded(simulation, runs=3))
    assert run.schedule.actions == simulation.schedule.actions
    assert run.makespan == pytest.approx(simulation.makespan * 1e-3)
    assert run.bubble == pytest.approx(simulation.bubble)
    assert Clock.of(run).write(0.0125) == "12.5 ms"
    player = schedule_grid(run)
    assert player.frames[-1].caption.startswith(f"At {simulation.makespan:g} ms: all ranks")


def test_the_run_stands_below_the_simulation_as_wide_as_it():
    simulation = simulate(one_f_one_b(2, 3), Costs(1, 1, 0.5))
    picture = simulated_and_measured(simulation, recorded(simulation))
    drawn = boxes(picture.svg)
    half = len(drawn) // 2
    above, below = drawn[:half], drawn[half:]
    assert [(k, x, w) for k, x, _, w, _ in above] == [(k, x, w) for k, x, _, w, _ in below]
    assert {y for _, _, y, _, _ in above}.isdisjoint(y for _, _, y, _, _ in below)
    assert picture.measured and "data-measured" in picture._repr_html_()
    assert "makespan 10 tF" in picture.alt and "makespan 10 ms" in picture.alt
    assert picture.title == "1F1B on paper, and measured" and ">measured, p = 2" in picture.svg
    other = simulated_and_measured(simulation, recorded(simulation), "on a described cluster")
    assert other.title == "1F1B on paper, and on a described cluster"
    assert ">on a described cluster, p = 2" in other.svg


def test_messages_of_a_run_are_those_of_its_ledgers():
    timeline = recorded(simulate(gpipe(2, 1)))
    first = timeline.rank(0).spans[0].begin
    for rank, op, begin in ((0, "send", 1.0), (1, "recv", -1.0)):  # received ahead of the run
        event = Event(rank, 0, op, "world", (0, 1), 0, 8, 8, 8, first + begin, first + 2.0)
        event.peer = 1 - rank
        timeline.rank(rank).events.append(event)
    (message,) = measured_schedule(timeline).messages
    assert (message.sender, message.receiver) == (0, 1)
    assert (message.sent, message.used) == pytest.approx((1.0, 2.0))


def test_half_a_run_and_no_run_are_refused():
    timeline = recorded(simulate(gpipe(2, 2)))
    timeline.rank(1).spans.pop(-2)
    with pytest.raises(ScheduleError, match="stage 1 runs only F for micro-batch 1"):
        measured_schedule(timeline)
    with pytest.raises(ValueError, match="no span with an action's name"):
        measured_schedule(Timeline([Ledger(0)]))


def test_a_shorter_run_after_a_longer_one_stands_alone():
    ledger = recorded(simulate(gpipe(1, 5))).rank(0)
    ledger.spans += recorded(simulate(gpipe(1, 2)), start=2000.0).rank(0).spans
    assert str(measured_schedule(Timeline([ledger])).schedule) == "0F0 0F1 0B0 0B1"


# --- the explorer --------------------------------------------------------------------------------
def test_moving_a_slider_draws_the_new_schedule():
    controls = Controls()
    assert explore(**START).svg.replace(ROLE_STYLE, "") in controls.view.value
    controls.sliders["m"].value = 12
    assert "m = 12" in controls.view.value and "makespan 45 tF" in controls.view.value
    controls.sliders["ratio"].value = 1.0
    assert "tB = 1 tF" in controls.view.value and "makespan 30 tF" in controls.view.value
    assert controls.sliders["v"].disabled and controls.sliders["share"].disabled
    controls.sliders["kind"].value = "interleaved 1F1B"
    assert not controls.sliders["v"].disabled and "v = 2" in controls.view.value
    controls.sliders["kind"].value = "ZB-H1"
    assert not controls.sliders["share"].disabled


def test_chunks_share_the_time_of_their_rank():
    whole, cut = explore("1F1B", 4, 8, 1, 2.0, 0.5), explore("interleaved 1F1B", 4, 8, 2, 2.0, 0.5)
    assert "bubble 37.5%" in whole.svg and "bubble 18.8%" in cut.svg  # (p-1)/m, (p-1)/(v·m)


def test_impossible_sizes_are_one_sentence():
    controls = Controls()
    controls.sliders["kind"].value = "DualPipeV"
    controls.sliders["m"].value = 5
    assert "<svg" not in controls.view.value
    assert (
        "No DualPipeV of 4 ranks and 5 micro-batches, because the pipeline is filled from both "
        "ends: it needs two for each rank."
    ) in controls.view.value
    controls.sliders["m"].value = 8
    assert "<svg" in controls.view.value


@pytest.mark.parametrize("kind", SCHEDULES)
def test_the_explorer_draws_or_refuses_every_size(kind):
    for p in (1, 2, 3, 8):
        for m in (1, 3, 8, 16):
            for ratio, share in ((0.5, 0.0), (3.0, 1.0)):
                try:
                    picture = explore(kind, p, m, 4, ratio, share)
                except ScheduleError as error:
                    assert reason(error).count("\n") == 0
                else:
                    assert len(picture.svg) < 80_000


@pytest.mark.parametrize("live", ["0", "1"])
def test_the_cell_is_the_same_with_and_without_sliders_but_for_the_view(monkeypatch, live):
    shown = []
    module = sys.modules[Explorer.__module__]
    monkeypatch.setattr(module, "display", lambda data, raw: shown.append(data))
    monkeypatch.setenv("COURSE_LIVE", live)
    schedule_explorer()._ipython_display_()
    assert shown[0] == schedule_explorer().still()
    assert shown[0]["text/plain"] == "ScheduleExplorer()"
    assert "makespan 33 tF" in shown[0]["text/html"]
    # nbval leaves out this one key, since the number of a widget is random; nothing else is there.
    assert [list(more) for more in shown[1:]] == (
        [["application/vnd.jupyter.widget-view+json"]] if live == "1" else []
    )


def test_a_text_schedule_of_the_readers_own_is_drawn():
    schedule = Schedule.parse("0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1", "mine")
    assert Action(0, "F", 1) in schedule.actions[0]
    assert schedule_picture(simulate(schedule)).title == "mine"
