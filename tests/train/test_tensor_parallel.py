"""The course's transformer, cut by tensor and sequence parallelism, beside one process."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from course_lib.comm import CommError, Group
from course_lib.model import ModelConfig, Transformer
from course_lib.parallel.tensor.tensor_parallel import HeadCut, own_range
from course_lib.parallel.tensor.vocab_parallel import vocab_parallel_cross_entropy
from course_lib.trace.memory import LiveMemory, held_bytes
from course_lib.train import tensor_parallel
from tests.tiers import sampled

SIZES = {"layers": 2, "hidden": 24, "heads": 12, "ffn": 31, "vocabulary": 29, "sequence": 12}
STEPPERS = {
    "SGD": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    "AdamW": (torch.optim.AdamW, {"lr": 0.01}),
}
GradsAndWeights = tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]


def config_of(kv_heads: int = 12, **changes: Any) -> ModelConfig:
    return ModelConfig(kv_heads=kv_heads, **{**SIZES, **changes})


def batch_of(step: int, config: ModelConfig, rows: int = 3) -> torch.Tensor:
    generator = torch.Generator().manual_seed(40 + step)
    return torch.randint(config.vocabulary, (rows, config.sequence + 1), generator=generator)


def train(model: Any, loss_of: Any, stepper: str, config: ModelConfig) -> GradsAndWeights:
    """Gradients of the first step, weights after the third."""
    kind, options = STEPPERS[stepper]
    optimizer = kind(model.parameters(), **options)
    first = {}
    for step in range(3):
        optimizer.zero_grad()
        tokens = batch_of(step, config)
        loss_of(model(tokens[:, :-1]), tokens[:, 1:]).backward()
        if not step:
            first = {n: p.grad.clone() for n, p in model.named_parameters()}
        optimizer.step()
    return first, {n: p.detach().clone() for n, p in model.named_parameters()}


def alone(config: ModelConfig, stepper: str) -> GradsAndWeights:
    model = Transformer(config, seed=3).double()

    def loss_of(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    return train(model, loss_of, stepper, config)


def cut(group: Group, config: ModelConfig, stepper: str, sequence: bool) -> GradsAndWeights:
    model = Transformer(config, seed=3).double()
    tensor_parallel(model, group, sequence=sequence)

    def loss_of(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return vocab_parallel_cross_entropy(logits, targets, config.vocabulary, group).mean()

    return train(model, loss_of, stepper, config)


def part_of(
    name: str, full: torch.Tensor, config: ModelConfig, rank: int, world: int
) -> torch.Tensor:
    """What a rank holds of a full tensor, computed from the rules and not by the library."""
    if name.endswith("norm.weight"):
        return full
    if name.endswith(("key.weight", "value.weight")):
        own = max(1, config.kv_heads // world) * config.head_width
        start = rank * config.kv_heads // world * config.head_width
        return full[start : start + own]
    dim = 1 if name.endswith(("output.weight", "down.weight")) else 0
    return full.tensor_split(world, dim)[rank]


@pytest.mark.parametrize("sequence", [False, True], ids=["tensor", "sequence"])
@pytest.mark.parametrize("stepper", sampled(["SGD", "AdamW"], 2))
@pytest.mark.parametrize(
    ("world", "kv_heads", "changes"),
    [(1, 12, {}), (2, 12, {"tied": True}), (3, 6, {"gated": False}), (4, 2, {}), (4, 1, {}),
     (3, 1, {"tied": True})],
)  # fmt: skip
def test_equal_to_one_process(
    ranks: Any, world: int, kv_heads: int, changes: dict[str, Any], stepper: str, sequence: bool
) -> None:
    config = config_of(kv_heads, **changes)
    expected = alone(config, stepper)
    for rank, found in enumerate(ranks(cut, world, config, stepper, sequence)):
        for whole, parts in zip(expected, found, strict=True):
            assert parts.keys() == whole.keys()
            for name, part in parts.items():
                right = part_of(name, whole[name], config, rank, world)
                torch.testing.assert_close(part, right, rtol=1e-9, atol=1e-12, msg=name)


def traffic(group: Group, config: ModelConfig, sequence: bool) -> dict[str, list[tuple[str, int]]]:
    """(operation, bytes sent) of every call of a forward with its loss, and of a backward."""
    model = Transformer(config, seed=3).double()
    tensor_parallel(model, group, sequence=sequence)
    tokens = batch_of(0, config)
    calls: dict[str, list[tuple[str, int]]] = {}
    mark = len(group.ledger.events)
    logits = model(tokens[:, :-1])
    for phase in ("forward", "loss", "backward"):
        if phase == "loss":
            out = vocab_parallel_cross_entropy(logits, tokens[:, 1:], config.vocabulary, group)
        elif phase == "backward":
            out.mean().backward()
        calls[phase] = [(e.op, e.sent) for e in group.ledger.events[mark:]]
        mark = len(group.ledger.events)
    return calls


@pytest.mark.parametrize("world", [2, 3, 4])
def test_bytes_to_the_byte(ranks: Any, world: int) -> None:
    config = config_of(12)
    activations = 3 * config.sequence * config.hidden * 8
    values = 3 * config.sequence * 8
    share = 2 * (world - 1)
    for calls in ranks(traffic, world, config, False):
        # Two sums a block and the embedding's; backward the output layer's instead.
        once = ("all_reduce", share * activations // world)
        assert calls["forward"] == [once] * (2 * config.layers + 1)
        assert calls["backward"] == [once] * (2 * config.layers + 1)
        assert calls["loss"] == [("all_reduce", share * values // world)] * 3


@pytest.mark.parametrize("world", [2, 3, 4])
def test_sequence_parallelism_costs_the_same_bytes(ranks: Any, world: int) -> None:
    config = config_of(12)
    activations = 3 * config.sequence * config.hidden * 8
    half = (world - 1) * activations // world
    norms = 2 * config.layers + 1
    for calls in ranks(traffic, world, config, True):
        # Embedding out, then in and out of each region, and into the output layer.
        regions = 2 * config.layers + 1
        forward = sorted(calls["forward"])
        assert forward == sorted(
            [("all_gather", half)] * regions + [("reduce_scatter", half)] * regions
        )
        small = ("all_reduce", 2 * (world - 1) * config.hidden * 8 // world)
        assert calls["backward"].count(small) == norms
        assert sorted(c for c in calls["backward"] if c != small) == forward
        assert len(calls["backward"]) == 2 * regions + norms


def shared_head_traffic(group: Group, config: ModelConfig) -> list[tuple[str, int]]:
    model = Transformer(config, seed=3).double()
    tensor_parallel(model, group)
    model(batch_of(0, config)[:, :-1]).sum().backward()
    return [(e.axis, e.sent) for e in group.ledger.events if e.axis != group.axis]


def test_a_shared_head_costs_its_own_bytes(ranks: Any) -> None:
    config = config_of(2)
    weight = config.head_width * config.hidden * 8
    for calls in ranks(shared_head_traffic, 4, config):
        # Two ranks share a head: 2(2-1)/2 of a weight, for key and value of each block.
        assert calls == [("world sharing a head", weight)] * (2 * config.layers)


def memory(group: Group, config: ModelConfig, sequence: bool) -> dict[str, int]:
    """Bytes of parameters, and the most that a forward and backward hold beyond them."""
    model = Transformer(config, seed=3)
    tensor_parallel(model, group, sequence=sequence)
    tokens = batch_of(0, config, rows=2)
    saved: list[tuple[int, ...]] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        saved.append(tuple(tensor.shape))
        return tensor

    with LiveMemory() as live, torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        logits = model(tokens[:, :-1])
        loss = vocab_parallel_cross_entropy(logits, tokens[:, 1:], config.vocabulary, group).mean()
        kept = live.now
        loss.backward()
    full_logits = (*tokens[:, 1:].shape, config.vocabulary)
    return {
        "parameters": held_bytes(list(model.parameters())),
        "peak": live.peak,
        "kept": kept,
        "full logits": sum(shape == full_logits for shape in saved),
        "largest": max(torch.Size(shape).numel() for shape in saved),
    }


def test_no_rank_holds_full_logits_and_each_a_part_of_the_weights(ranks: Any) -> None:
    # With so many tokens, logits outweigh everything else.
    config = config_of(12, vocabulary=6000, sequence=64, hidden=24)
    logits = 2 * config.sequence * config.vocabulary * 4
    whole = Transformer(config)
    norms = sum(p.nbytes for n, p in whole.named_parameters() if "norm" in n)
    for found in ranks(memory, 4, config, False):
        total = held_bytes(list(whole.parameters())) - norms
        # The inner width, 31, is cut into 8, 8, 8 and 7.
        slack = 3 * config.layers * config.hidden * 4
        assert abs(found["parameters"] - norms - total / 4) <= slack
        assert found["full logits"] == 0
        assert found["largest"] <= 2 * config.sequence * config.vocabulary // 4
        assert found["peak"] < logits


def test_sequence_parallelism_keeps_less_of_the_activations(ranks: Any) -> None:
    config = config_of(12, sequence=64, ffn=32, layers=2)
    tensor, sequence = (ranks(memory, 4, config, how)[0] for how in (False, True))
    assert sequence["kept"] < 0.8 * tensor["kept"]


@pytest.mark.parametrize("count", [0, 1, 5, 12])
@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_own_range_is_tensor_split(count: int, world: int) -> None:
    expected = [len(part) for part in torch.arange(count).tensor_split(world)]
    ranges = [own_range(count, _Only(index, world)) for index in range(world)]  # type: ignore
    assert [len(part) for part in ranges] == expected
    assert [i for part in ranges for i in part] == list(range(count))


class _Only:
    """The two numbers of a group that a cut depends on."""

    def __init__(self, index: int, size: int) -> None:
        self.index, self.size = index, size


def refusal(group: Group, heads: int, kv_heads: int) -> str:
    try:
        HeadCut(heads, kv_heads, group)
    except CommError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(("heads", "kv_heads"), [(10, 10), (8, 3), (12, 6)])
def test_heads_that_cannot_be_cut(ranks: Any, heads: int, kv_heads: int) -> None:
    for text in ranks(refusal, 4, heads, kv_heads):
        assert f"attention of {heads} query and {kv_heads} key-value heads, cut over 4" in text
        assert "whole heads" in text


def uneven_sequence(group: Group, config: ModelConfig) -> str:
    model = Transformer(config)
    tensor_parallel(model, group, sequence=True)
    try:
        model(batch_of(0, config)[:, :-2])
    except CommError as error:
        return str(error)
    return ""


def test_a_sequence_that_cannot_be_cut(ranks: Any) -> None:
    for text in ranks(uneven_sequence, 2, config_of(12)):
        assert "2 does not divide 11; pad the dim first" in text


def too_small(group: Group, config: ModelConfig) -> str:
    try:
        tensor_parallel(Transformer(config), group)
    except CommError as error:
        return str(error)
    return ""


def test_a_rank_without_a_part(ranks: Any) -> None:
    for text in ranks(too_small, 4, config_of(12, ffn=3)):
        assert "3 inner channels are fewer than tp 4" in text
