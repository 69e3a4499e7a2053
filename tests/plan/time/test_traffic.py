"""Bytes by axis, against the sums that lesson 13 makes by hand, and against a real run's ledger."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from course_lib.comm import Group, Mesh
from course_lib.layout import Layout
from course_lib.model import AdamW, ModelConfig, Transformer
from course_lib.plan import model, parse_cluster
from course_lib.plan.inputs.software import Software
from course_lib.plan.time.traffic import traffic
from course_lib.schedule import one_f_one_b
from course_lib.train import lay_out, make_optimizers, own_micro_batches, train_step

LLAMA = replace(model("llama3-70b"), sequence=8192)
ACTIVATION = 8192 * 8192 * 2


def test_a_large_run_by_hand() -> None:
    layout = Layout(pp=8, dp=8, tp=8, micro_batches=64, zero=1, sequence=True)
    found = traffic(LLAMA, layout, parse_cluster("512xH100"))
    assert found["tp"].sent == pytest.approx(64 * 10 * 4 * 2 * 7 / 8 * ACTIVATION)
    assert found["pp"].sent == pytest.approx(7 / 8 * 64 * 2 * ACTIVATION / 8)
    assert {axis: one.nodes for axis, one in found.items()} == {"tp": 1, "dp": 8, "pp": 8}
    again = traffic(LLAMA, replace(layout, recompute="full"), parse_cluster("512xH100"))
    assert again["tp"].sent == pytest.approx(1.5 * found["tp"].sent)
    assert again["dp"] == found["dp"] and again["pp"] == found["pp"]


def test_what_zero_sends() -> None:
    cluster, bytes_by_stage = parse_cluster("64xH100"), []
    for zero in (0, 1, 2, 3):
        layout = Layout(dp=64, micro_batches=4, zero=zero)
        bytes_by_stage.append(traffic(LLAMA, layout, cluster)["dp"].sent)
    plain, first, second, third = bytes_by_stage
    assert plain == first == second, "ZeRO-1 and 2 send what DDP sends"
    assert third == pytest.approx(4 * 1.5 * plain), "in each of four micro-batches"
    wide = traffic(LLAMA, Layout(dp=64, zero=1), cluster, Software(grad_bytes=4))
    assert wide["dp"].sent == pytest.approx(1.5 * first)


def test_experts_and_long_sequences() -> None:
    mixtral = model("mixtral-8x7b")
    layout = Layout(ep=8, cp=2, dp=2, tp=2)
    found = traffic(mixtral, layout, parse_cluster("64xH100"))
    part = mixtral.sequence // 2 * mixtral.hidden * 2
    assert found["ep"].sent == pytest.approx(mixtral.layers * 4 * 7 / 8 * part * 2)
    held = 2 * mixtral.kv_heads * mixtral.head_width / 2 * mixtral.sequence // 2 * 2
    assert found["cp"].sent == pytest.approx(mixtral.layers * 3 * held)
    assert {axis: one.nodes for axis, one in found.items()} == {"tp": 1, "cp": 1, "ep": 4, "dp": 8}


SMALL = ModelConfig(layers=4, hidden=32, heads=4, kv_heads=2, ffn=44, vocabulary=64, sequence=16)


def step(group: Group) -> dict[str, int]:
    """A step on pp 2 × dp 2 × tp 2 in float64: bytes that this rank sent, by axis."""
    mesh = Mesh(group, {"pp": 2, "dp": 2, "tp": 2})
    model = lay_out(Transformer(SMALL).double(), mesh, one_f_one_b(2, 2))
    tokens = torch.randint(0, 64, (8, 17), generator=torch.Generator().manual_seed(1))
    batches = own_micro_batches(tokens[:, :-1], tokens[:, 1:], model)
    group.ledger.forget()
    train_step(model, batches, make_optimizers(model, AdamW))
    return {axis: group.ledger.sent(axis=axis) for axis in ("tp", "pp")}


def test_a_real_run(ranks: Callable[..., list[Any]]) -> None:
    """In numbers: there they have eight bytes, here two. tp also has embedding and loss."""
    found = ranks(step, 8)
    layout = Layout(pp=2, dp=2, tp=2, micro_batch_size=2, micro_batches=2)
    predicted = traffic(SMALL, layout, parse_cluster("8xH100"))
    mean = {axis: sum(one[axis] for one in found) / 8 / 8 for axis in ("tp", "pp")}
    # Each of tp sends all of the activation: only a program that cuts sequences sends its part.
    assert mean["pp"] == pytest.approx(layout.tp * predicted["pp"].sent / 2, rel=0.01)
    assert predicted["tp"].sent / 2 < mean["tp"] < 1.35 * predicted["tp"].sent / 2
