"""A training step over a mesh, beside one process: losses, norms, tokens, bytes for each axis."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from math import prod
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from course_lib.comm import CommError, Group, Mesh
from course_lib.model import (
    AdamW,
    ModelConfig,
    MoEConfig,
    Transformer,
    auxiliary_loss,
    update_router_bias,
)
from course_lib.schedule import (
    Schedule,
    dualpipe_v,
    gpipe,
    interleaved_1f1b,
    one_f_one_b,
    zb_h1,
    zb_v,
)
from course_lib.train import lay_out, make_optimizers, own_micro_batches, train_step
from course_lib.train.evaluate import evaluate
from tests.tiers import sampled

DENSE = ModelConfig(
    layers=4, hidden=16, heads=4, kv_heads=2, ffn=22, vocabulary=23, sequence=8
)  # fmt: skip
TIED = ModelConfig(
    layers=4, hidden=16, heads=4, kv_heads=1, ffn=22, vocabulary=23, sequence=8, tied=True
)  # fmt: skip
EXPERTS = ModelConfig(
    layers=4, hidden=16, heads=4, kv_heads=2, ffn=6, vocabulary=23, sequence=8,
    moe=MoEConfig(experts=5, top_k=2, balance=0.1, z=0.01, bias_rate=0.01),
)  # fmt: skip
STEPS, ROWS, RATE, MAX_NORM = 5, 9, 0.03, 0.7
Trajectory = list[tuple[float, float, int]]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """For the one process: on so small a model threads only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@dataclass(frozen=True)
class Case:
    """A layout: what is on which axis, and how."""

    config: ModelConfig
    sizes: dict[str, int]
    schedule: Schedule
    how: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        axes = " ".join(f"{axis}{size}" for axis, size in self.sizes.items()) or "one rank"
        kinds = {id(DENSE): "dense", id(TIED): "tied", id(EXPERTS): "experts"}
        words = [name if value is True else f"{name} {value}" for name, value in self.how.items()]
        return " ".join([kinds[id(self.config)], axes, self.schedule.name, *words])


def batch_of(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows that no number of ranks divides, and few counted tokens in the first of them."""
    generator = torch.Generator().manual_seed(step % 2)
    tokens = torch.randint(23, (ROWS, 9), generator=generator)
    inputs, targets = tokens[:, :-1], tokens[:, 1:].clone()
    targets[torch.rand(targets.shape, generator=generator) < 0.2] = -100
    targets[:3, 2:] = -100
    return inputs, targets


@cache
def alone(config: ModelConfig, m: int) -> Trajectory:
    """One process. Only experts' auxiliary losses depend on how the rows are grouped.

    Args:
        config: the model.
        m: micro-batches.
    """
    model = Transformer(config, seed=1).double()
    optimizer = AdamW(model.parameters(), lr=RATE)
    found = []
    for step in range(STEPS):
        optimizer.zero_grad()
        inputs, targets = batch_of(step)
        count, loss = int((targets != -100).sum()), 0.0
        for rows in torch.arange(ROWS).tensor_split(m):
            logits, right = model(inputs[rows]).flatten(0, 1), targets[rows].flatten()
            part = F.cross_entropy(logits, right, reduction="sum") / count
            (part + auxiliary_loss(model) / m).backward()
            loss += part.item()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
        optimizer.step()
        update_router_bias(model)
        found.append((loss, norm.item(), count))
    return found


def spread(group: Group, case: Case) -> Trajectory:
    mesh = Mesh(group, case.sizes)
    whole = Transformer(case.config, seed=1).double()
    model = lay_out(whole, mesh, case.schedule, **case.how)
    optimizers = make_optimizers(model, AdamW, lr=RATE)
    found = []
    for step in range(STEPS):
        batches = own_micro_batches(*batch_of(step), model)
        report = train_step(model, batches, optimizers, MAX_NORM)
        found.append((report.loss, report.norm, report.tokens))
    return found


SEQUENCE, RECOMPUTE, SELECTIVE = (
    {"sequence": True}, {"recompute": "full"}, {"recompute": "selective"}
)  # fmt: skip
ZERO1, ZERO2, FSDP = {"zero": 1}, {"zero": 2}, {"zero": 3}
HSDP = FSDP | {"shard": 2}
CASES = [
    Case(TIED, {}, one_f_one_b(1, 3)),
    Case(TIED, {"dp": 4}, one_f_one_b(1, 2)),
    Case(DENSE, {"dp": 3}, gpipe(1, 3), RECOMPUTE | ZERO1),
    Case(TIED, {"dp": 3}, one_f_one_b(1, 3), SELECTIVE | ZERO2),
    Case(DENSE, {"tp": 4}, one_f_one_b(1, 1), SEQUENCE | SELECTIVE),
    Case(DENSE, {"cp": 3}, one_f_one_b(1, 2)),
    Case(DENSE, {"pp": 4}, gpipe(4, 4), SELECTIVE),
    Case(TIED, {"dp": 2, "tp": 2}, one_f_one_b(1, 2), SEQUENCE | ZERO1),
    Case(TIED, {"dp": 2, "tp": 2}, one_f_one_b(1, 2), SEQUENCE | ZERO2),
    Case(DENSE, {"pp": 2, "dp": 2}, one_f_one_b(2, 3), ZERO1),
    Case(TIED, {"pp": 2, "dp": 2}, interleaved_1f1b(2, 2, 2), FSDP | RECOMPUTE),
    Case(DENSE, {"dp": 2, "cp": 2}, one_f_one_b(1, 2), FSDP),
    Case(TIED, {"dp": 4}, one_f_one_b(1, 2), HSDP | RECOMPUTE),
    Case(DENSE, {"pp": 2, "dp": 4}, one_f_one_b(2, 2), HSDP),
    Case(TIED, {"pp": 2, "tp": 2}, zb_v(2, 3), SEQUENCE | RECOMPUTE),
    Case(TIED, {"pp": 2}, dualpipe_v(2, 4)),
    Case(TIED, {"cp": 2, "tp": 2}, one_f_one_b(1, 2), SEQUENCE),
    Case(TIED, {"pp": 2, "cp": 2}, zb_h1(2, 3), ZERO1),
    Case(TIED, {"pp": 2, "dp": 2, "tp": 2}, one_f_one_b(2, 3), SEQUENCE | ZERO1),
    Case(TIED, {"pp": 2, "dp": 2, "tp": 2}, one_f_one_b(2, 2), FSDP),
    Case(TIED, {"pp": 2, "dp": 2, "cp": 2}, one_f_one_b(2, 2), FSDP),
    Case(DENSE, {"dp": 2, "cp": 2, "tp": 2}, one_f_one_b(1, 2), FSDP | SEQUENCE),
    Case(DENSE, {"pp": 4, "tp": 2}, one_f_one_b(4, 5)),
    Case(EXPERTS, {"dp": 2, "ep": 2}, one_f_one_b(1, 2), ZERO1),
    Case(EXPERTS, {"dp": 2, "ep": 2}, one_f_one_b(1, 2), ZERO2 | SELECTIVE),
    Case(EXPERTS, {"pp": 2, "ep": 2}, zb_v(2, 2), RECOMPUTE),
    Case(EXPERTS, {"ep": 2, "cp": 2}, one_f_one_b(1, 2)),
    Case(EXPERTS, {"ep": 4}, one_f_one_b(1, 2)),
    Case(EXPERTS, {"pp": 2, "ep": 2, "tp": 2}, one_f_one_b(2, 2)),
    Case(EXPERTS, {"pp": 2, "dp": 2, "ep": 2}, interleaved_1f1b(2, 2, 2), ZERO1),
]


@pytest.mark.parametrize("case", sampled(CASES, 5), ids=str)
def test_follows_one_process(ranks: Any, case: Case) -> None:
    expected = alone(case.config, case.schedule.micro_batches if case.config.moe else 1)
    found = ranks(spread, prod(case.sizes.values()), case)
    assert all(one == found[0] for one in found), "every rank says the same, to the bit"
    for step, (mine, right) in enumerate(zip(found[0], expected, strict=True)):
        assert mine == pytest.approx(right, rel=1e-9), f"loss, norm, tokens of step {step}"


def test_the_batches_tell_wrong_ways_apart() -> None:
    """What the equality above would not let pass: it is not blind to the usual mistakes."""
    right = alone(DENSE, 1)
    assert right[4][0] < 0.9 * right[0][0], "it learns, so a wrong update shows"
    assert all(norm > 1.05 * MAX_NORM for _, norm, _ in right), "and every step is clipped"
    inputs, targets = batch_of(0)
    logits = Transformer(DENSE, seed=1).double()(inputs)
    halves = [
        F.cross_entropy(logits[rows].flatten(0, 1), targets[rows].flatten())
        for rows in torch.arange(ROWS).tensor_split(2)
    ]
    assert abs(sum(halves).item() / 2 - right[0][0]) > 1e-4, "a mean of means is another number"
    counts = {int((part != -100).sum()) for part in targets.tensor_split(2)}
    assert len(counts) == 2
    assert alone(EXPERTS, 2)[4][0] != pytest.approx(alone(EXPERTS, 1)[4][0], rel=1e-6)


# --- bytes ---------------------------------------------------------------------------------------
def traffic(group: Group) -> dict[str, Any]:
    """Bytes sent on each axis in a step of pp 2 × dp 2 × tp 2, and what they depend on."""
    mesh = Mesh(group, {"pp": 2, "dp": 2, "tp": 2})
    model = lay_out(Transformer(TIED, seed=1).double(), mesh, one_f_one_b(2, 2))
    optimizers = make_optimizers(model, AdamW, lr=RATE)
    inputs, targets = batch_of(0)
    batches = own_micro_batches(inputs[:8], targets[:8], model)
    place = group.ledger.place()
    train_step(model, batches, optimizers, MAX_NORM)
    events = [event for event in group.ledger.events[place.events :] if event.parent < 0]
    sent: Counter[str] = Counter()
    for event in events:
        sent[event.axis] += event.sent
    stage = next(iter(model.pipeline.stages.values()))
    return {
        "sent": dict(sent),
        "numbers": [e.axis for e in events if (e.op, e.payload) == ("all_reduce", 8)],
        "place": mesh.get_coordinate(),
        "blocks": len(stage.blocks),  # type: ignore[arg-type]
        "parameters": sum(p.nbytes for p in model.parameters),
        "tied": model.tied[0].nbytes if model.tied else None,
    }


def test_bytes_of_each_axis(ranks: Any) -> None:
    """With two ranks on every axis, an all-reduce sends each rank's bytes once."""
    found = ranks(traffic, 8)
    activations = 2 * 8 * TIED.hidden * 8  # two rows of eight tokens, in a micro-batch
    for one in found:
        sent, last = one["sent"], one["place"]["pp"]
        assert sent["pp"] == 2 * activations, "each micro-batch's activation, or its gradient"
        assert sent["tied"] == one["tied"] == 12 * 16 * 8 - (one["place"]["tp"] * 16 * 8)
        assert sent["dp_ep_cp"] == one["parameters"] + 8, "gradients, and the tokens' count"
        # Forward and backward two sums a block, and one more at each end of the model; for the loss
        # three of a number for each token.
        sums = 2 * (4 * one["blocks"] + 1) * activations
        assert sent["tp"] == sums + last * 2 * 3 * (2 * 8 * 8)
        assert one["numbers"] == ["dp_ep_cp", "pp_dp_ep_cp", "pp_dp_ep_cp_tp"], (
            "of eight bytes: tokens, loss and norm"
        )
    assert {one["blocks"] for one in found} == {2}
    # What several ranks have is in the sum as often: the whole, with norms twice for tp, ...
    model = Transformer(TIED, seed=1).double()
    norms = sum(p.nbytes for n, p in model.named_parameters() if "norm" in n)
    heads = sum(
        p.nbytes for n, p in model.named_parameters() if n.endswith(("key.weight", "value.weight"))
    )
    whole = sum(p.nbytes for p in model.parameters())
    held = sum(one["parameters"] for one in found if one["place"]["dp"] == 0)
    assert held == whole + norms + heads + model.embedding.weight.nbytes


# --- what is refused -----------------------------------------------------------------------------
def refusals(group: Group) -> list[str]:
    def said(function: Any, *args: Any, **options: Any) -> str:
        with pytest.raises(CommError) as caught:
            function(*args, **options)
        return str(caught.value)

    def fresh(config: ModelConfig) -> Transformer:
        return Transformer(config, seed=1)

    dp, pp = (Mesh(group, {axis: 2}) for axis in ("dp", "pp"))
    model = lay_out(fresh(DENSE), dp, one_f_one_b(1, 2), zero=3)
    inputs, targets = batch_of(0)
    batches = own_micro_batches(inputs, torch.full_like(targets, -100), model)
    odd = ModelConfig(layers=2, hidden=16, heads=4, kv_heads=4, ffn=22, sequence=9)
    return [
        said(lay_out, fresh(EXPERTS), dp, zero=3),
        said(lay_out, fresh(DENSE), pp, zb_h1(2, 2), zero=3),
        said(lay_out, fresh(DENSE), pp, zero=2),
        said(own_micro_batches, inputs[:3], targets[:3], model),
        said(own_micro_batches, inputs, targets[:-1], model),
        said(own_micro_batches, inputs[0], targets[0], model),
        said(train_step, model, batches, make_optimizers(model, AdamW)),
        said(lay_out, fresh(odd), Mesh(group, {"tp": 2}), sequence=True),
        said(lay_out, fresh(DENSE), dp, zero=1, shard=1),
    ]


def test_refuses(ranks: Any) -> None:
    for said in ranks(refusals, 2):
        assert "experts, which only some of the ranks have" in said[0]
        assert "ZB-H1, whose backwards come in halves" in said[1]
        assert "a pipeline of 2 ranks" in said[2] and "use ZeRO-1" in said[2]
        assert "2 micro-batches for each of 2 ranks" in said[3] and "3 rows" in said[3]
        assert "targets (8, 8)" in said.pop(4) and "inputs (8,)" in said.pop(4)
        assert "no target that counts" in said[4]
        assert "9 tokens of each window on a rank of cp" in said[5]
        assert "cut over 1 ranks" in said[6] and "ZeRO-1 over" in said[6]


MISFITS: list[tuple[dict[str, int], dict[str, Any]]] = [
    ({"pp": 2}, {"zero": 2}),
    ({"pp": 2}, {"schedule": one_f_one_b(3, 3)}),
    ({"pp": 2}, {"schedule": interleaved_1f1b(2, 2, 3)}),
    ({"tp": 2}, {"precision": "int4"}),
    ({"tp": 2}, {"recompute": "ful"}),
    ({"dp": 2}, {"zero": 4}),
    ({"dp": 2}, {"zero": 3, "shard": 3}),
    ({"cp": 2}, {"documents": True}),
]


def test_what_is_refused_leaves_the_model_whole(ranks: Any) -> None:
    """A word that was typed wrong in a cell is put right, and the cell is run again."""

    def run(group: Group) -> None:
        for sizes, how in MISFITS:
            model = Transformer(DENSE, seed=1)
            before = dict(model.named_modules())
            with pytest.raises(ValueError):
                lay_out(model, Mesh(group, sizes), **how)
            assert dict(model.named_modules()) == before, how
            right = {"zero": 1} if "zero" in how else {}
            lay_out(model, Mesh(group, sizes), **right)

    ranks(run, 2)


def test_a_rank_that_has_nothing_to_train(ranks: Any) -> None:
    """The first stage is frozen, as in a fine-tuning of the last layers."""

    def run(group: Group, sizes: dict[str, int]) -> list[float]:
        model = Transformer(DENSE, seed=1).double()
        for name, parameter in model.named_parameters():
            parameter.requires_grad_("blocks.3" in name)
        laid = lay_out(model, Mesh(group, sizes), zb_h1(sizes["pp"], 2))
        optimizers = make_optimizers(laid, AdamW, lr=RATE)
        batches = own_micro_batches(*batch_of(0), laid)
        return [train_step(laid, batches, optimizers).loss for _ in range(3)]

    assert ranks(run, 2, {"pp": 2})[0] == pytest.approx(ranks(run, 1, {"pp": 1})[0], rel=1e-9)


def test_an_evaluation_leaves_modules_as_they_were(ranks: Any) -> None:
    def run(group: Group) -> None:
        model = lay_out(Transformer(EXPERTS), Mesh(group, {"dp": 2}), one_f_one_b(1, 2))
        [stage] = model.pipeline.stages.values()
        stage.blocks["1"].eval()
        before = [module.training for module in stage.modules()]
        evaluate(model, own_micro_batches(*batch_of(0), model))
        assert [module.training for module in stage.modules()] == before

    ranks(run, 2)
