"""FSDP that gathers in 8 bits: bytes, the same weights on every rank, and the same training."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from course_lib.comm import Mesh
from course_lib.model import ModelConfig, Transformer, cross_entropy
from course_lib.parallel import FSDP, Precision
from course_lib.precision import (
    E4M3FN,
    BlockScaling,
    CurrentScaling,
    DelayedScaling,
    Fp8Pack,
    fp8_linears,
    round_to,
)
from tests.tiers import sampled

CONFIG = ModelConfig(layers=3, hidden=24, heads=2, kv_heads=1, ffn=31, vocabulary=29, sequence=8)


def block(seed: int) -> nn.Sequential:
    """Sizes that no number of ranks divides; weights of very different size."""
    torch.manual_seed(seed)
    made = nn.Sequential(nn.Linear(7, 5), nn.LayerNorm(5), nn.Linear(5, 7))
    with torch.no_grad():
        made[0].weight.mul_(torch.logspace(-3, 1, 5)[:, None])
        made[1].weight.fill_(1.001)
    return made


def blocks() -> nn.Sequential:
    model = nn.Sequential(block(0), block(1))
    fp8_linears(model, CurrentScaling())
    return model


@pytest.mark.parametrize("world", [1, 2, 3, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_what_is_computed_with_is_the_weight_rounded_once(
    ranks: Any, world: int, dtype: torch.dtype
) -> None:
    def run(group: Any) -> Any:
        model = blocks()
        seen: dict[str, torch.Tensor] = {}
        for name, module in model.named_modules():
            for key, parameter in module.named_parameters(recurse=False):
                module.register_forward_hook(
                    lambda *_, n=f"{name}.{key}", p=parameter: seen.update({n: p.detach().clone()})
                )
        precision = Precision(dtype, pack=Fp8Pack(model))
        wrapped = FSDP(model, group, model, precision=precision)
        wrapped(torch.ones(2, 7))
        return seen, wrapped.full_state_dict()

    full = dict(blocks().named_parameters())
    results = ranks(run, world)
    for seen, kept in results:
        assert seen.keys() == full.keys()
        for name, parameter in full.items():
            expected = parameter.detach()
            if expected.dim() == 2:
                scale = expected.abs().max() / E4M3FN.largest
                expected = round_to(E4M3FN, expected / scale) * scale
            assert torch.equal(seen[name], expected.to(dtype)), name
            assert torch.equal(kept[name], parameter), "the shards keep the weights as they are"


@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_a_quarter_of_the_bytes_and_one_small_message(ranks: Any, world: int) -> None:
    def run(group: Any, dtype: torch.dtype | None, packed: bool) -> Any:
        model = blocks()
        pack = Fp8Pack(model) if packed else None
        wrapped = FSDP(model, group, model, precision=Precision(dtype, pack=pack))
        since = len(group.ledger.events)
        wrapped(torch.ones(2, 7)).float().sum().backward()
        calls = [(e.op, e.payload, e.sent, e.dtype) for e in group.ledger.events[since:]]
        return [call for call in calls if call[0] != "reduce_scatter"], dict(group.ledger.held)

    def padded(count: int) -> int:
        return -(-count // world) * world

    weights, rest = padded(7 * 5 + 5 * 7), padded(5 + 2 * 5 + 7)
    for dtype, name, item in ((None, "float32", 4), (torch.bfloat16, "bfloat16", 2)):
        gather_rest = ("all_gather", item * rest, item * rest * (world - 1) / world, name)
        for calls, held in ranks(run, world, dtype, True):
            scales, *gathers = calls[:3]
            assert (scales[0], scales[1], scales[3]) == ("all_reduce", 2 * 4, "float32")
            assert set(gathers) == {
                ("all_gather", weights, weights * (world - 1) / world, "float8_e4m3fn"),
                gather_rest,
            }
            assert len(calls) == 3 * 2 * 2, "two units, each for its forward and its backward"
            assert held["communication buffers"] == 0
            assert held["parameters"] == 2 * 4 * (weights + rest) // world, "the shards alone"
        for calls, _ in ranks(run, world, dtype, False):
            assert {op for op, *_ in calls} == {"all_gather"} and len(calls) == 2 * 2
            whole = item * padded(7 * 5 + 5 * 7 + 5 + 2 * 5 + 7)
            assert all(call[1] == whole for call in calls)


def train(group: Any, recipe: Any, packed: bool, steps: int = 6, **options: Any) -> Any:
    """Losses of some steps on random tokens, and the gradients of the first."""
    model = Transformer(CONFIG, seed=1)
    fp8_linears(model, recipe(), keep=["head"])
    pack = Fp8Pack(model) if packed else None
    dtype = options.pop("dtype", None)
    mesh = Mesh(group, {"replica": 2, "shard": 2}) if options.pop("hsdp", False) else None
    shards, replicas = (mesh["shard"], mesh["replica"]) if mesh else (group, None)
    precision = Precision(dtype, torch.float32, pack)
    wrapped = FSDP(model, shards, model.blocks, replicas=replicas, precision=precision, **options)
    optimizer = torch.optim.AdamW(wrapped.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(29, (12, 9), generator=generator).chunk(group.size)[group.index]
    losses: list[float] = []
    first: dict[str, torch.Tensor] = {}
    for _ in range(steps):
        optimizer.zero_grad()
        loss = cross_entropy(wrapped(tokens[:, :-1]).float(), tokens[:, 1:])
        loss.backward()
        first = first or wrapped.full_gradients()
        optimizer.step()
        losses.append(loss.item())
    return losses, first


OPTIONS: dict[str, tuple[int, dict[str, Any]]] = {
    "one rank": (1, {}), "two": (2, {}), "three": (3, {}), "four": (4, {}),
    "no reshard": (2, {"reshard": False}), "no prefetch": (2, {"prefetch": False}),
    "replicas": (4, {"hsdp": True}),
}  # fmt: skip


@pytest.mark.parametrize("case", sampled(OPTIONS, 3))
def test_with_current_scaling_training_is_the_same(ranks: Any, case: str) -> None:
    """Those layers round their weights to the very numbers that were sent."""
    world, options = OPTIONS[case]

    def run(group: Any, packed: bool) -> Any:
        return train(group, CurrentScaling, packed, **dict(options))

    for packed, plain in zip(ranks(run, world, True), ranks(run, world, False), strict=True):
        torch.testing.assert_close(packed[0], plain[0], rtol=1e-4, atol=0)
        for name, gradient in plain[1].items():
            most = float(gradient.abs().max())
            torch.testing.assert_close(packed[1][name], gradient, rtol=1e-4, atol=1e-5 * most)
        assert packed[0][-1] < packed[0][0] - 0.1, "it learns"


@pytest.mark.parametrize("recipe", [BlockScaling, DelayedScaling])
@pytest.mark.parametrize("dtype", [None, torch.bfloat16], ids=str)
def test_with_other_recipes_training_is_close(ranks: Any, recipe: Any, dtype: Any) -> None:
    def run(group: Any, packed: bool) -> list[float]:
        return train(group, recipe, packed, dtype=dtype)[0]

    for packed, plain in zip(ranks(run, 2, True), ranks(run, 2, False), strict=True):
        torch.testing.assert_close(packed, plain, rtol=0.01, atol=0)


def test_the_next_unit_sets_out_before_this_one_computes(ranks: Any) -> None:
    def run(group: Any) -> Any:
        model = blocks()
        wrapped = FSDP(model, group, model, precision=Precision(pack=Fp8Pack(model)))
        for _ in range(2):
            group.ledger.spans.clear()
            wrapped(torch.ones(2, 7)).sum().backward()
        return [(s.begin, s.end, s.name) for s in group.ledger.spans]

    for spans in ranks(run, 2):
        begins = {name: begin for begin, _, name in reversed(spans)}
        ends = {name: end for _, end, name in spans}
        assert begins["gather 1"] < ends["forward 0"]
        last = {name: begin for begin, _, name in spans}
        assert last["gather 0"] < ends["backward 1"]


def test_a_weight_that_others_use_is_not_packed() -> None:
    model = Transformer(CONFIG)
    fp8_linears(model, CurrentScaling())
    assert len(Fp8Pack(model).parameters) == 3 * 7 + 1
    tied = Transformer(ModelConfig(**{**vars(CONFIG), "tied": True}))
    fp8_linears(tied, CurrentScaling())
    assert len(Fp8Pack(tied).parameters) == 3 * 7
    assert tied.embedding.weight not in Fp8Pack(tied).parameters


def test_frozen_weights_zeros_and_overflow(ranks: Any) -> None:
    def run(group: Any, value: float) -> torch.Tensor:
        model = blocks()
        model[0].requires_grad_(False)
        with torch.no_grad():
            model[1][0].weight.zero_()
            model[0][2].weight[-1, -1] = value
        wrapped = FSDP(model, group, model, precision=Precision(pack=Fp8Pack(model)))
        out = wrapped(torch.ones(2, 7))
        out.sum().backward()
        return out.detach()

    for out in ranks(run, 3, 1.0):
        assert out.isfinite().all()
    for value in (torch.inf, torch.nan):
        for out in ranks(run, 3, value):
            assert out.isnan().any(), "an overflow must be seen"
