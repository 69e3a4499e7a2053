"""DeepSeek-V3: latent attention, shared experts, limited nodes; and what its authors measured."""

from __future__ import annotations

from dataclasses import replace

import pytest

from course_lib.layout import Layout
from course_lib.model.formulas import block_parameters, stage_costs
from course_lib.plan.inputs.hardware import cluster
from course_lib.plan.inputs.models import model
from course_lib.plan.inputs.software import Software
from course_lib.plan.memory.share import block_counts, share_of
from course_lib.plan.time.block import block
from course_lib.plan.time.exchange import expert_exchange
from course_lib.plan.time.simulate import simulate

V3 = model("deepseek-v3")
# Section 4.2: 2048 H800, 16 stages, 64 ranks share the experts, ZeRO-1, 15360 sequences of 4096.
OWN = Layout(
    pp=16, dp=2, ep=64, zero=1, micro_batches=120, schedule="DualPipeV", chunks=2, precision="fp8"
)


def test_products_are_two_operations_for_each_weight_that_a_token_uses() -> None:
    """All of a block's active weights but those of its four norms are in one product each."""
    (forward,) = (block(V3, Layout(), Software()).forward,)
    norms = 2 * 7168 + 1536 + 512
    weights = block_parameters(V3, active=True) - norms
    assert sum(p.flops for p in forward.products) == 2 * 4096 * weights
    # 128 heads: queries and keys of 192, values of 128, and a mask that hides half.
    assert forward.attention == 2 * 4096**2 * 128 * (192 + 128) / 2
    assert stage_costs(V3)[1] > 2 * (187_107_328 + 3 * 7168 * 2048)


def test_a_rank_has_all_of_a_blocks_parameters_or_its_share() -> None:
    assert block_counts(V3, share_of(V3, Layout())).whole == block_parameters(V3)
    cut = block_counts(V3, share_of(V3, Layout(ep=64, tp=2)))
    assert cut.experts == 3 * 7168 * 1024 * 4
    down = 7168 * (1536 + 512 + 64) + 1536 + 512  # every rank of tp makes the latent vectors
    heads = 64 * (1536 * 192 + 512 * 256 + 128 * 7168)
    assert cut.dense == down + heads + 3 * 7168 * 1024 + 7168 * 256 + 2 * 7168


def test_a_token_that_goes_to_few_nodes_is_sent_there_once() -> None:
    """To 4 of 8 nodes in place of 8 experts: half of the bytes through the adapters."""
    assert V3.moe
    free = replace(V3, moe=replace(V3.moe, nodes=0))
    machines = cluster("H800", 2048)
    limited, usual = (expert_exchange(each, OWN, machines) for each in (V3, free))
    assert limited == pytest.approx(usual / 2, rel=0.1)
    one_node = replace(OWN, ep=8, dp=16)
    assert expert_exchange(V3, one_node, machines) == expert_exchange(free, one_node, machines)


def test_the_authors_hours_are_near_the_prediction() -> None:
    """180 thousand hours of an H800 for a trillion tokens, 3.7 days (section 1 of the report).

    Nothing was fitted to it. The agreement is in part luck: the prediction does not hide what
    experts exchange, as the authors' kernels do, and does not compute again what they do.
    """
    found = simulate(V3, OWN, cluster("H800", 2048))
    days = 1e12 / (15360 * 4096 / found.seconds) / 86400
    assert days == pytest.approx(3.7, rel=0.15)
