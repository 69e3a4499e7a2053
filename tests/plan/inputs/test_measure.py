"""This machine as a cluster: plausible numbers, and a step that can be predicted from them."""

from __future__ import annotations

import pytest

from course_lib.layout import Layout
from course_lib.model.config import ModelConfig
from course_lib.plan.inputs import measure
from course_lib.plan.time.simulate import simulate
from course_lib.trace.alpha_beta import AlphaBeta


def test_this_machine_can_be_predicted() -> None:
    here = measure.measure_here(2, AlphaBeta(5e-5, 1e-9))
    assert here.gpu.reached["fp32"] > 1e8
    assert here.gpu.bandwidth > 1e7
    assert here.count == here.node == 2
    assert here.inside.bandwidth == pytest.approx(1e9)
    layout = Layout(dp=2, precision="fp32", micro_batches=1)
    step = simulate(ModelConfig(), layout, here)
    assert step.seconds > step.model_flops / 2 / here.gpu.peak["fp32"]
    assert step.exposed["dp"] > 0
