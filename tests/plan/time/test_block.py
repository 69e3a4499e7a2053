"""What a rank computes: FLOPs against the papers' formulas, sharing, and the roofline."""

from __future__ import annotations

import pytest

from course_lib.layout import Layout
from course_lib.model.config import ModelConfig, MoEConfig
from course_lib.model.formulas import flops_per_token
from course_lib.plan.inputs.calibration import STREAMING, Fitted
from course_lib.plan.inputs.hardware import GPUS
from course_lib.plan.inputs.recipe import Recipe
from course_lib.plan.inputs.software import Software
from course_lib.plan.time import flops
from course_lib.plan.time.block import Product, Work, block, head
from course_lib.plan.time.kernels import FIRST, compute, filled, product_seconds

GPT = ModelConfig(24, 2304, 24, 24, 9216, 51200, 2048, gated=False, tied=True)
LLAMA = ModelConfig(32, 4096, 32, 8, 14336, 128256, 8192)
PLAIN = Software(recipe=Recipe(flash=False))
H100 = GPUS["H100"]


def work_flops(*works: Work) -> float:
    return sum(p.flops for work in works for p in work.products) + sum(w.attention for w in works)


def test_flops_are_the_papers_formulas() -> None:
    c = GPT
    s, h, layers, v = c.sequence, c.hidden, c.layers, c.vocabulary
    model = 72 * layers * s * h**2 * (1 + s / (6 * h) + v / (12 * h * layers))
    hardware = 96 * layers * s * h**2 * (1 + s / (6 * h) + v / (16 * layers * h))
    assert flops.model(c) == pytest.approx(model)
    assert flops.hardware(c, "full") == pytest.approx(hardware)
    causal = flops.model(c) - 1.5 * flops.attention(c)
    assert flops_per_token(c) * s == pytest.approx(causal, rel=1e-3)


def test_llama_8b_is_counted_as_published() -> None:
    assert flops.model(LLAMA) == pytest.approx(4.744e14, rel=0.001)


@pytest.mark.parametrize("layout", [Layout(), Layout(tp=8, sequence=True), Layout(cp=2, tp=2)])
@pytest.mark.parametrize("config", [GPT, LLAMA])
def test_a_rank_computes_its_share(config: ModelConfig, layout: Layout) -> None:
    one = block(config, layout, PLAIN)
    share = layout.tp * layout.cp
    forward = (flops.matrices(config) + flops.attention(config)) / config.layers / share
    assert work_flops(one.forward) == pytest.approx(forward)
    assert work_flops(one.input, one.weight) == pytest.approx(2 * forward)
    top = head(config, layout)
    assert work_flops(top.forward) == pytest.approx(flops.logits(config) / share)


def test_flash_attention_leaves_out_half_and_the_traffic_of_the_scores() -> None:
    plain, flash = (block(GPT, Layout(), Software(recipe=Recipe(flash=f))) for f in (False, True))
    less = work_flops(plain.forward) - work_flops(flash.forward)
    assert less == pytest.approx(flops.attention(GPT) / GPT.layers / 2)
    scores = GPT.heads * GPT.sequence**2
    assert plain.forward.traffic - flash.forward.traffic > 4 * scores


def test_recomputation_is_the_forward_or_attention_alone() -> None:
    full = block(GPT, Layout(recompute="full"), PLAIN)
    assert full.again == full.forward
    some = block(GPT, Layout(recompute="selective"), PLAIN)
    assert work_flops(some.again) == pytest.approx(flops.attention(GPT) / GPT.layers)


def test_experts_see_their_tokens() -> None:
    moe = ModelConfig(2, 512, 8, 8, 1024, 1000, 256, moe=MoEConfig(8, 2))
    whole = work_flops(block(moe, Layout(), PLAIN).forward)
    assert whole == pytest.approx((flops.matrices(moe) + flops.attention(moe)) / 2)
    assert work_flops(block(moe, Layout(ep=4), PLAIN).forward) == pytest.approx(whole)


def test_a_product_is_bound_by_flops_or_by_memory() -> None:
    fitted = Fitted(1.0)
    large = Product(8192, 8192, 8192)
    rate = large.flops / product_seconds(large, H100, "bf16", fitted)
    assert rate == pytest.approx(H100.reached["bf16"] * filled(large, H100))
    thin = Product(8192, 32, 8192)
    moved = thin.values * 2 / product_seconds(thin, H100, "bf16", fitted)
    assert moved == pytest.approx(H100.bandwidth * STREAMING)


def test_waves_fill_up() -> None:
    assert filled(Product(128 * 132, 64, 256), H100) == pytest.approx(1)
    assert filled(Product(128 * 133, 64, 256), H100) == pytest.approx(133 / 264, rel=0.02)
    assert filled(Product(128, 64, 256), H100) == pytest.approx(1 / 132)


def test_the_first_flash_attention_is_slower() -> None:
    work = block(LLAMA, Layout(), Software()).forward
    old, new = (
        compute(work, H100, Layout(), Software(attention=generation), Fitted())["attention"]
        for generation in (1, 3)
    )
    second = compute(work, H100, Layout(), Software(attention=2), Fitted())["attention"]
    assert second == pytest.approx(new * 0.6 / 0.34)
    assert old == pytest.approx(second / FIRST)
