"""The film of recomputation: what it holds is what the planner says, and what is played by hand."""

from __future__ import annotations

import random
import re

import pytest

from course_lib.plot import recompute_steps
from course_lib.plot.player.style import ORANGE, SKY, VERMILLION
from course_lib.plot.recompute.recompute import said
from course_lib.plot.recompute.recompute_plan import AGAIN, BACKWARD, FORWARD, Run
from course_lib.recompute import Segment, best_segments, peak_memory, segments_sqrt

MIB = 1 << 20


def some_plan(draw: random.Random, n: int) -> list[Segment]:
    """Segments of any length, kept or recomputed."""
    cuts = [0, *sorted(draw.sample(range(1, n), draw.randint(0, n - 1))), n]
    runs = [range(a, b) for a, b in zip(cuts, cuts[1:], strict=False)]
    return [Segment(run, draw.random() < 0.6) for run in runs]


@pytest.mark.parametrize("seed", range(20))
def test_the_peak_is_the_planners(seed):
    draw = random.Random(seed)
    n = draw.randint(2, 12)
    memories = [draw.randint(1, 50) for _ in range(n)]
    inputs = [draw.randint(0, 9) for _ in range(n)]
    plan = some_plan(draw, n)
    run = Run("plan", plan, memories, inputs)
    assert run.peak(run.end) == peak_memory(plan, memories, inputs)
    again = sum(len(blocks) for blocks, recomputed in plan if recomputed)
    assert run.forwards(run.end) == n + again
    assert run.end == 3 * n + again
    assert run.held(run.now(run.end)) == (0, 0)


def test_actions_and_what_they_hold():
    run = Run("plan", [(range(2), True), (range(2, 3), False)], [4, 5, 6], [1, 1, 1])
    story = [(a.kind, a.block, a.begin, sum(run.held(a))) for a in run.actions]
    assert story == [
        (FORWARD, 0, 0, 1), (FORWARD, 1, 1, 1), (FORWARD, 2, 2, 7), (BACKWARD, 2, 3, 7),
        (AGAIN, 0, 5, 5), (AGAIN, 1, 6, 10), (BACKWARD, 1, 7, 10), (BACKWARD, 0, 9, 5),
    ]  # fmt: skip
    assert [run.peak(time) for time in (-1, 0, 2, 6, 10)] == [0, 1, 7, 10, 10]
    words = [said(run, time) for time in (0, 1, 2, 6, 9, 11)]
    assert words == [
        "forward of block 0, its input is kept", "forward of block 1, nothing is kept",
        "forward of block 2, all inside it is kept",
        "forward of block 1 again, all inside it is kept now",
        "backward of block 0, then what is inside it is freed", "done",
    ]  # fmt: skip


def two_plans(n: int) -> dict[str, list[Segment]]:
    """All kept, and √n segments."""
    roots = [Segment(blocks, True) for blocks in segments_sqrt(n)]
    return {"keep all": [Segment(range(n), False)], "√n": roots}


def test_numbers_of_two_plans_on_one_clock():
    plans = two_plans(9)
    player = recompute_steps(plans, [8 * MIB] * 9, [MIB] * 9)
    root = peak_memory(plans["√n"], [8 * MIB] * 9, [MIB] * 9)
    assert root == 27 * MIB
    assert player.frames[-1].caption == (
        "Done. keep all: peak 72 MiB, 9 block forwards, time 27. √n: peak 27 MiB, 18 block "
        "forwards, time 36 (38 % of the memory, 133 % of the time of keep all)."
    )
    assert player.alt.endswith(player.frames[-1].caption.removeprefix("Done. "))
    last = "".join(player.frames[-1].parts)
    assert "held 0 B · peak so far 72 MiB · block forwards 9 of 9<" in last
    assert "held 0 B · peak so far 27 MiB · block forwards 18 of 18<" in last
    still = player.frames[player.still]
    assert "held 27 MiB · peak so far 27 MiB" in "".join(still.parts)


def test_blocks_are_coloured_by_what_is_held_of_them():
    player = recompute_steps(two_plans(4), [8] * 4, [1] * 4)  # √n: 0 and 1, 2 and 3
    parts = player.frames[5].parts  # time 4: backward of 3 in one plan, forward of 2 in the other
    first, second = parts[2:6], parts[9:13]
    assert [SKY in part for part in first] == [True] * 4
    assert [ORANGE in part for part in second] == [True, False, True, False]
    assert [SKY in part for part in second] == [False, False, True, False]
    assert ">B</text>" in first[3] and ">R</text>" in second[2]
    assert player.frames[5].caption == (
        "Time 4 to 5. keep all: backward of block 3, then what is inside it is freed. "
        "√n: forward of block 2 again, all inside it is kept now."
    )


def test_curves_are_as_high_as_the_bytes():
    """The steps of the drawn outline, as shares of the highest."""
    plans = {"plan": [(range(2), True), (range(2, 3), False)]}
    player = recompute_steps(plans, [40, 50, 60], [10, 10, 10])
    path = re.search(rf'd="M[\d.]+ ([\d.]+)([^"]*)V\1Z" fill="{SKY}"', player.background)
    foot, levels = float(path[1]), [float(y) for y in re.findall(r"V([\d.]+)", path[2])]
    high = foot - min(levels)
    assert [round((foot - y) / high * 100) for y in levels] == [10, 70, 50, 100, 50]
    peaks = [re.search(rf'M[\d.]+ ([\d.]+)L.*"{VERMILLION}"', f.parts[-2]) for f in player.frames]
    assert float(peaks[-1][1]) == pytest.approx(min(levels), abs=0.1) and peaks[0] is None


def test_plans_of_the_search_can_be_drawn():
    found = best_segments([1] * 9, [8] * 9, 45, [1] * 9)
    player = recompute_steps({"best": found.segments}, [8 * MIB] * 9, [MIB] * 9)
    forwards = 9 + round(found.extra)
    assert f"peak {found.peak} MiB, {forwards} block forwards" in player.frames[-1].caption


def test_what_is_no_plan_is_refused():
    for plan in ([], [(range(1), True)], [(range(1, 2), True), (range(1), True)]):
        with pytest.raises(ValueError, match="a plan has each block once, in order"):
            recompute_steps({"plan": plan}, [1, 1], [1, 1])
    with pytest.raises(ValueError, match="1 of their inputs"):
        recompute_steps({"plan": [(range(2), True)]}, [1, 1], [1])
    for plans, blocks in (({}, 2), (two_plans(21), 21)):
        with pytest.raises(ValueError, match="found: room for 1 to 3 plans and 20 blocks"):
            recompute_steps(plans, [1] * blocks, [1] * blocks)


def test_the_longest_film_is_small():
    plans = two_plans(20) | {"half": [Segment(range(10), False), Segment(range(10, 20), True)]}
    player = recompute_steps(plans, [8 * MIB] * 20, [MIB] * 20)
    assert len(player.frames) > 60 and len(player._repr_html_()) < 150_000
