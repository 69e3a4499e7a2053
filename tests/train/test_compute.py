"""Lower precision on a mesh: what is narrow, what stays wide, and that ranks skip together."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest
import torch

from course_lib.comm import Group, Mesh
from course_lib.model import AdamW, ModelConfig, MoEConfig, Transformer
from course_lib.precision import DynamicLossScaler
from course_lib.schedule import one_f_one_b, zb_h1
from course_lib.train import lay_out, make_optimizers, own_micro_batches, train_step
from tests.tiers import sampled

SMALL = ModelConfig(
    layers=2, hidden=32, heads=4, kv_heads=2, ffn=48, vocabulary=32, sequence=16, tied=True
)  # fmt: skip
EXPERTS = ModelConfig(
    layers=2, hidden=32, heads=4, kv_heads=2, ffn=16, vocabulary=32, sequence=16,
    moe=MoEConfig(experts=4, top_k=2),
)  # fmt: skip
STEPS = 4


def batch_of(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(step)
    tokens = torch.randint(32, (8, 17), generator=generator)
    return tokens[:, :-1], tokens[:, 1:]


def losses(
    group: Group, config: ModelConfig, sizes: dict[str, int], how: dict[str, Any]
) -> dict[str, Any]:
    """A few steps, and what they were made of."""
    how = dict(how)
    mesh = Mesh(group, sizes)
    schedule = zb_h1(mesh["pp"].size, 2) if how.pop("halves", False) else None
    schedule = schedule or one_f_one_b(mesh["pp"].size, 2)
    scale = how.pop("scale", None)
    model = lay_out(Transformer(config, seed=1), mesh, schedule, **how)
    optimizers = make_optimizers(model, AdamW, lr=1e-2)
    scaler = None if scale is None else DynamicLossScaler(group, scale)
    reports = []
    for step in range(STEPS):
        batches = own_micro_batches(*batch_of(step), model)
        reports.append(train_step(model, batches, optimizers, inf, scaler))
    return {
        "losses": [report.loss for report in reports],
        "norms": [report.norm for report in reports],
        "made": [report.made for report in reports],
        "dtypes": {str(p.dtype) for p in model.parameters},
        "sent": {(e.axis, e.op, e.dtype) for e in group.ledger.events if e.parent < 0},
    }


CASES = [
    (SMALL, {"pp": 2}, {}),
    (SMALL, {"tp": 2}, {"sequence": True, "recompute": "full"}),
    (SMALL, {"dp": 2}, {"zero": 3, "recompute": "selective"}),
    (SMALL, {"cp": 2}, {"zero": 1}),
    (SMALL, {"pp": 2}, {"halves": True}),
    (SMALL, {"pp": 2, "tp": 2}, {"zero": 1, "recompute": "full"}),
    (EXPERTS, {"ep": 2}, {"recompute": "full"}),
    (EXPERTS, {"tp": 2}, {"zero": 2}),
]


@pytest.mark.parametrize("precision", ["bf16", "fp16", "fp8"])
@pytest.mark.parametrize("case", sampled(CASES, 2), ids=lambda case: f"{case[1]} {case[2]}")
def test_narrow_follows_wide(ranks: Any, case: Any, precision: str) -> None:
    """Near to float32, and not equal to it: it would be, if nothing were narrow."""
    config, sizes, how = case
    scale = {"scale": 256.0} if precision == "fp16" else {}
    world = 4 if len(sizes) > 1 else 2
    wide = ranks(losses, 1, config, {}, {})[0]
    found = ranks(losses, world, config, sizes, {"precision": precision, **how, **scale})
    near = {"bf16": 0.02, "fp16": 0.005, "fp8": 0.05}[precision]
    for one in found:
        assert one["losses"] == pytest.approx(wide["losses"], rel=near)
        assert one["losses"] == found[0]["losses"]
        assert one["dtypes"] == {"torch.float32"}, "weights and their gradients stay wide"
    assert found[0]["losses"] != pytest.approx(wide["losses"], rel=1e-7)


def test_what_goes_over_each_axis(ranks: Any) -> None:
    """Activations are half as long; gradients are summed in float32."""
    sizes = {"pp": 2, "dp": 2, "tp": 2}
    found = ranks(losses, 8, SMALL, sizes, {"precision": "bf16"})[0]["sent"]
    assert {kind for kind in found if kind[0] == "pp"} == {
        ("pp", "send", "bfloat16"), ("pp", "recv", "bfloat16")
    }  # fmt: skip
    assert ("tp", "all_reduce", "bfloat16") in found
    assert ("dp_ep_cp", "all_reduce", "float32") in found
    assert ("dp_ep_cp", "all_reduce", "bfloat16") not in found


def test_an_overflow_skips_the_step_on_every_rank(ranks: Any) -> None:
    """With a scale beyond fp16's range nothing is updated until it has fallen."""
    how = {"precision": "fp16", "scale": 2.0**30}
    found = ranks(losses, 4, SMALL, {"pp": 2, "dp": 2}, how | {"zero": 1})
    for one in found:
        assert one["made"] == [False] * STEPS
        assert one["losses"] != [one["losses"][0]] * STEPS, "other windows, the same weights"
    unmoved = ranks(losses, 1, SMALL, {}, how)[0]
    assert found[0]["losses"] == pytest.approx(unmoved["losses"], rel=5e-3)


def test_the_scale_is_not_in_the_norm(ranks: Any) -> None:
    """Gradients are divided by it before they are measured, clipped and used."""
    one, other = (
        ranks(losses, 2, EXPERTS, {"ep": 2}, {"precision": "fp16", "scale": scale})[0]["norms"]
        for scale in (64.0, 1024.0)
    )
    assert one == pytest.approx(other, rel=2e-2)


def test_refuses_a_word_it_does_not_know(ranks: Any) -> None:
    def said(group: Group) -> str:
        with pytest.raises(ValueError) as caught:
            lay_out(Transformer(SMALL), Mesh(group, {}), precision="int4")
        return str(caught.value)

    assert "'int4'" in ranks(said, 1)[0] and "fp32, fp16, bf16, fp8" in ranks(said, 1)[0]
