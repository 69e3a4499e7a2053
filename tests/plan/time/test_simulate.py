"""Simulated steps: parts that add up, directions that must hold, and the largest plan."""

from __future__ import annotations

from dataclasses import replace

import pytest

from course_lib.layout import Layout
from course_lib.model.config import ModelConfig, MoEConfig
from course_lib.plan.inputs.calibration import Fitted
from course_lib.plan.inputs.hardware import cluster
from course_lib.plan.inputs.software import Software
from course_lib.plan.time.simulate import PredictedStep, simulate
from course_lib.plan.time.timing import layers_of

LLAMA = ModelConfig(80, 8192, 64, 8, 28672, 128256, 8192)
SMALL = ModelConfig(16, 2048, 16, 16, 8192, 1000, 2048)
OPEN = Software(overlap=frozenset())


def step(
    layout: Layout, config: ModelConfig = SMALL, software: Software | None = None
) -> PredictedStep:
    return simulate(config, layout, cluster("H100", layout.gpus), software, Fitted(0.9, 0.01))


@pytest.mark.parametrize(
    "layout",
    [
        Layout(micro_batches=4),
        Layout(dp=16, micro_batches=2, zero=3, recompute="full"),
        Layout(pp=4, dp=2, tp=2, micro_batches=8, zero=1),
        Layout(pp=4, micro_batches=8, schedule="interleaved 1F1B", chunks=2, precision="fp8"),
        Layout(pp=2, cp=4, tp=2, sequence=True, micro_batches=6, schedule="ZB-V"),
    ],
)
def test_parts_add_up(layout: Layout) -> None:
    for software in (None, OPEN):
        found = step(layout, software=software)
        assert sum(found.parts.values()) == pytest.approx(found.seconds)
        assert all(value >= 0 for value in found.parts.values())
        assert 0 < found.mfu <= found.hfu < 1
        whole = found.tflops * 1e12 * found.seconds * layout.gpus
        assert whole == pytest.approx(found.model_flops)


def test_a_bubble_shrinks_with_micro_batches_and_chunks() -> None:
    few, many = (step(Layout(pp=4, micro_batches=m)).bubble for m in (8, 32))
    assert few == pytest.approx(3 / 11, rel=0.1)
    assert many == pytest.approx(3 / 35, rel=0.1)
    chunks = Layout(pp=4, micro_batches=8, schedule="interleaved 1F1B", chunks=2)
    assert step(chunks).bubble < 0.6 * few
    halved = step(replace(chunks, schedule="ZB-H1", chunks=1)).bubble
    assert halved < 0.6 * few


def test_what_is_hidden_is_not_exposed() -> None:
    layout = Layout(dp=8, tp=8, sequence=True, micro_batches=4, zero=1)
    hidden, shown = step(layout), step(layout, software=OPEN)
    assert hidden.exposed["tp"] < shown.exposed["tp"]
    assert hidden.exposed["dp"] < shown.exposed["dp"]
    assert hidden.parts["products"] == shown.parts["products"]


def test_full_recomputation_takes_a_third_more() -> None:
    none, full = (step(Layout(micro_batches=4, recompute=r)).seconds for r in ("none", "full"))
    assert 1.25 < full / none < 1.4


def test_tp_beyond_a_node_is_slow() -> None:
    inside = step(Layout(dp=2, tp=8, micro_batches=4), LLAMA, OPEN)
    outside = step(Layout(tp=16, micro_batches=8), LLAMA, OPEN)
    assert outside.exposed["tp"] > 2 * inside.exposed["tp"]


def test_more_nodes_wait_for_their_slowest() -> None:
    times = [step(Layout(dp=n, zero=1, micro_batches=4)).parts["slowest"] for n in (8, 64, 512)]
    assert times[0] == 0 < times[1] < times[2]


def test_experts_exchange_tokens() -> None:
    moe = replace(SMALL, moe=MoEConfig(8, 2))
    assert step(Layout(ep=8, micro_batches=2), moe).exposed["ep"] > 0
    assert step(Layout(dp=8, micro_batches=2), moe).exposed["ep"] == 0


def test_a_hundred_thousand_gpus_are_simulated() -> None:
    layout = Layout(pp=16, dp=800, tp=8, micro_batches=64, zero=1, sequence=True)
    found = step(layout, LLAMA)
    assert layout.gpus == 102_400
    assert 0.2 < found.mfu < 0.7


def test_a_layout_of_another_size_is_refused() -> None:
    with pytest.raises(ValueError, match="layout of 4 GPUs"):
        simulate(SMALL, Layout(dp=4), cluster("H100", 8))


@pytest.mark.parametrize(
    "layers, stages, cut", [(8, 4, [2, 2, 2, 2]), (30, 8, [3, 4, 4, 4, 4, 4, 4, 3]), (5, 2, [3, 2])]
)
def test_blocks_go_to_stages(layers: int, stages: int, cut: list[int]) -> None:
    assert layers_of(layers, stages) == cut
