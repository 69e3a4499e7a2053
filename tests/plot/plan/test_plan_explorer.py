"""The planner explorer: what is drawn is what `plan` says, and what cannot be is said in words."""

from __future__ import annotations

import re
from typing import Any

import pytest

from course_lib.layout import Layout
from course_lib.plan import answer, memory, model, parse_cluster, problem, simulate
from course_lib.plan.time.traffic import traffic
from course_lib.plot import explore_plan, show_layout
from course_lib.plot.plan.plan_drawing import LEFT, WIDE, LayoutDrawing
from course_lib.plot.plan.plan_explorer import START, PlanControls, best, draw
from course_lib.plot.player.style import format_bytes, format_time

LAYOUT = Layout(pp=4, dp=16, tp=8, micro_batches=64, zero=1, sequence=True)


def test_numbers_are_those_of_the_room() -> None:
    config, cluster = model("llama3-70b"), parse_cluster("512xH100")
    picture, words = draw(START)
    step = simulate(config, LAYOUT, cluster)
    assert f"takes {format_time(step.seconds)} (±" in words
    assert f"): {step.tflops:.0f} TFLOP/s" in words
    assert f"MFU {step.mfu:.1%}" in words and f"bubble {step.bubble:.1%}" in words
    drawing = LayoutDrawing(problem("llama3-70b", "512xH100", 1024), LAYOUT)
    assert drawing.fits and drawing.memory.states == memory(config, LAYOUT).states
    for axis, one in traffic(config, LAYOUT, cluster).items():
        assert f">{axis}<" in picture.svg
        assert format_bytes(one.sent, decimal=True) in picture.svg


def test_bars_fill_their_row_and_nothing_lies_outside() -> None:
    picture, _ = draw(START)
    bars = [(float(x), float(wide)) for x, y, wide, tall in re.findall(
        r'<rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)"', picture.svg
    ) if y == "152" and tall == "26"]  # fmt: skip
    assert sum(wide for _, wide in bars) == pytest.approx(WIDE, abs=2)
    assert max(x + wide for x, wide in bars) <= LEFT + WIDE + 0.2


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"tp": 16}, "tp 16 exceeds a node of 8"),
        ({"pp": 32, "batch": 32}, "16 micro-batches leave some of 32 stages idle"),
        ({"batch": 8}, "every rank of dp and ep needs 1 sequences"),
        ({"gpus": 16}, "16 GPUs and 1024 sequences cannot be cut so"),
        ({"ep": 8, "tp": 1}, "experts"),
    ],
)
def test_what_cannot_be_is_said(settings: dict[str, Any], said: str) -> None:
    controls = PlanControls()
    for name, value in settings.items():
        controls.sliders[name].value = value
    assert said in controls.view.value


def test_what_does_not_fit_is_said() -> None:
    _, words = draw({**START, "gpus": 64, "tp": 8, "pp": 1, "zero": 0})
    assert "which is too much" in words


@pytest.mark.slow
def test_the_planners_choice_moves_the_sliders() -> None:
    controls = PlanControls()
    controls.take_best()
    found = answer("llama3-70b", "512xH100", 1024, 8192).plan.best
    assert found is not None
    assert controls.sliders["tp"].value == found.layout.tp
    assert format_time(found.seconds) in controls.view.value
    assert best(START)["zero"] == found.layout.zero
    controls.sliders["gpus"].value = 1
    controls.take_best()
    assert "no layout fits" in controls.view.value


def test_one_layout_without_sliders_and_the_still_picture() -> None:
    picture = show_layout("llama3-70b", "512xH100", LAYOUT)
    assert picture.svg == draw(START)[0].svg
    assert "cp-plan-still" in explore_plan().html() and "<img alt=" in explore_plan().html()
