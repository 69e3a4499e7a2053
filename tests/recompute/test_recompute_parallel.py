"""Recomputation on several ranks: the same gradients, the same calls on all, and how many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from course_lib.comm import Group
from course_lib.model import ModelConfig, Transformer
from course_lib.parallel import FSDP, BucketedDDP, RegionRng
from course_lib.parallel.tensor.vocab_parallel import vocab_parallel_cross_entropy
from course_lib.recompute.checkpoint import Recompute, checkpoint, checkpoint_module
from course_lib.recompute.selective import selective
from course_lib.trace.memory import LiveMemory
from course_lib.train import tensor_parallel
from tests.tiers import sampled

CONFIG = ModelConfig(layers=3, hidden=24, heads=12, kv_heads=12, ffn=31, vocabulary=29, sequence=12)


def close(got: Any, expected: Any) -> None:
    torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-12)


def batch_of(step: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(40 + step)
    return torch.randint(CONFIG.vocabulary, (3, CONFIG.sequence + 1), generator=generator)


# --- tensor and sequence parallel ----------------------------------------------------------------
def cut_and_train(
    group: Group, sequence: bool, how: Callable[..., Any] | None
) -> tuple[Any, Any, list[str]]:
    """Gradients of the first step, weights after the third, and the first backward's calls."""
    model = Transformer(CONFIG, seed=3).double()
    tensor_parallel(model, group, sequence=sequence)
    for block in model.blocks if how is not None else ():
        checkpoint_module(block, how)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    first, calls = {}, []
    for step in range(3):
        optimizer.zero_grad()
        tokens = batch_of(step)
        logits = model(tokens[:, :-1])
        loss = vocab_parallel_cross_entropy(logits, tokens[:, 1:], CONFIG.vocabulary, group).mean()
        mark = len(group.ledger.events)
        loss.backward()
        if not step:
            calls = [event.op for event in group.ledger.events[mark:]]
            first = {n: p.grad.clone() for n, p in model.named_parameters()}
        optimizer.step()
    return first, {n: p.detach() for n, p in model.named_parameters()}, calls


def both_ways(group: Group, sequence: bool) -> list[Any]:
    return [cut_and_train(group, sequence, how) for how in (None, checkpoint, selective())]


@pytest.mark.parametrize("sequence", [False, True], ids=["tensor", "sequence"])
@pytest.mark.parametrize("world", sampled([3, 2, 4], 3))
def test_tensor_parallel_repeats_all_but_the_last_sum(
    ranks: Any, world: int, sequence: bool
) -> None:
    results = ranks(both_ways, world, sequence)
    # A block's forward sums after attention and after the feed-forward network. What comes out of
    # the second sum is saved by nobody: the second run ends before it.
    again = {"all_gather": 2, "reduce_scatter": 1} if sequence else {"all_reduce": 1}
    expected = Counter({op: CONFIG.layers * count for op, count in again.items()})
    for plain, *checkpointed in results:
        for first, weights, calls in checkpointed:
            close((first, weights), plain[:2])
            assert Counter(calls) - Counter(plain[2]) == expected
            assert calls == results[0][1][2], "the same calls, in the same order, on every rank"


# --- FSDP and DDP --------------------------------------------------------------------------------
class Block(nn.Module):
    """A residual block, part of which is perhaps left out."""

    def __init__(self, seed: int, width: int = 6) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)

        def weight(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(shape, generator=generator, dtype=torch.float64) / 3)

        self.inner, self.bias, self.outer = weight(width, 11), weight(11), weight(11, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.tanh(x @ self.inner + self.bias) @ self.outer


class Model(nn.Module):
    """Four blocks and nothing else: the last gradient of backward is a block's, and the first."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.blocks = nn.ModuleList(Block(n) for n in range(4))
        if kind == "frozen":
            self.blocks[1].requires_grad_(False)
            self.blocks[2].bias.requires_grad_(False)
        if kind == "tied":
            self.blocks[3].inner = self.blocks[0].inner

    def _half(self, half: int, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks[2 * half : 2 * half + 2]:
            x = block(x)
        return x

    def forward(self, x: torch.Tensor, segments: bool) -> torch.Tensor:
        for half in range(2):
            x = checkpoint(self._half, half, x) if segments else self._half(half, x)
        if self.kind == "repeated":
            x = self.blocks[0](x)
        return x


def wrapped_training(
    group: Group, kind: str, wrap: str, segments: bool, how: Callable[..., Any] | None
) -> Any:
    """Gradients and weights after three steps, and the calls of the last."""
    model = Model(kind)
    for block in model.blocks if how is not None else ():
        checkpoint_module(block, how)
    sharded = FSDP(model, group, model.blocks, reshard=wrap == "FSDP") if "FSDP" in wrap else None
    wrapper = sharded or BucketedDDP(model, group)
    optimizer = torch.optim.AdamW(wrapper.parameters(), lr=0.01)
    for step in range(3):
        optimizer.zero_grad()
        x = torch.randn(12, 6, generator=torch.Generator().manual_seed(step), dtype=torch.float64)
        mark = len(group.ledger.events)
        loss = wrapper(x.chunk(group.size)[group.index], segments).pow(2).mean()
        loss.backward()
        calls = [(event.op, event.sent) for event in group.ledger.events[mark:]]
        optimizer.step()
    state = sharded.full_state_dict() if sharded else dict(model.named_parameters())
    return {name: tensor.detach() for name, tensor in state.items()}, calls


def all_kinds(group: Group, wrap: str) -> Any:
    ways = {"none": (False, None), "blocks": (False, checkpoint), "halves": (True, None),
            "both": (True, checkpoint), "selective": (False, selective())}  # fmt: skip
    return {
        kind: {name: wrapped_training(group, kind, wrap, *way) for name, way in ways.items()}
        for kind in ("plain", "frozen", "tied", "repeated")
    }


@pytest.mark.parametrize("wrap", sampled(["FSDP", "FSDP without resharding", "DDP"], 2))
@pytest.mark.parametrize("world", sampled([3, 2], 2))
def test_data_parallel_is_the_same_and_sends_nothing_more(
    ranks: Any, world: int, wrap: str
) -> None:
    results = ranks(all_kinds, world, wrap)
    for result in results:
        for kind, ways in result.items():
            plain, calls = ways["none"]
            for name in ("blocks", "selective", "halves", "both"):
                weights, again = ways[name]
                close(weights, plain)
                first = results[0][kind][name][1]
                assert [op for op, _ in again] == [op for op, _ in first], "order"
                # A unit is gathered for its backward anyway, and its second run is a part of that.
                assert Counter(again) == Counter(calls), (kind, name)


def sharded_peak(group: Group, checkpointed: bool) -> int:
    """The most that activations and gathered parameters take beside what is always there."""
    blocks = nn.Sequential(*(Block(n) for n in range(8)))
    for block in blocks if checkpointed else ():
        checkpoint_module(block)
    model = FSDP(blocks, group, list(blocks))
    x = torch.ones(400, 6, dtype=torch.float64)
    with LiveMemory() as memory:
        model(x).sum().backward()
    return memory.peak


def test_fsdp_holds_inputs_and_one_block(ranks: Any) -> None:
    one_input, inner = 400 * 6 * 8, 400 * 11 * 8
    slack = 40 * 6 * 24 * 8  # parameters, gradients and what is on its way, of small blocks
    for peak, without in zip(
        ranks(sharded_peak, 2, True), ranks(sharded_peak, 2, False), strict=True
    ):
        assert peak <= 8 * one_input + 3 * (one_input + inner) + slack
        assert without >= 8 * (one_input + inner)


def differs_on_one_rank(group: Group) -> str:
    """A function whose second run is another one on rank 1."""
    runs = iter([3, 3 - group.rank])

    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x[: next(runs)])

    try:
        checkpoint(fn, torch.ones(4, requires_grad=True)).sum().backward()
    except ValueError as error:
        return str(error)
    return ""


def test_a_rank_that_does_something_else_is_named_by_its_error(ranks: Any) -> None:
    texts = ranks(differs_on_one_rank, 2)
    assert texts[0] == ""
    assert "saved tensor 1 of fn" in texts[1]


# --- random numbers by region --------------------------------------------------------------------
def dropped(group: Group, recomputed: bool) -> torch.Tensor:
    """The input's gradient of a block with dropout on replicated and on sharded values."""
    rng = RegionRng(7, group)

    def block(x: torch.Tensor) -> torch.Tensor:
        for name in ("sharded", "replicated"):
            with rng.region(name):
                x = nn.functional.dropout(x.tanh() * x)
        return x

    x = torch.linspace(-1, 1, 40, dtype=torch.float64, requires_grad=True)
    y = (Recompute([rng]) if recomputed else (lambda fn, x: fn(x)))(block, x)
    with rng.region("sharded"):
        torch.rand(3)  # the streams go on before the backward comes
    y.square().sum().backward()
    assert x.grad is not None
    return x.grad


def test_dropout_of_regions_is_drawn_again_as_it_was(ranks: Any) -> None:
    found = ranks(lambda group: [dropped(group, again) for again in (False, True)], 2)
    for kept, recomputed in found:
        assert torch.equal(kept, recomputed)
    assert not torch.equal(found[0][0], found[1][0])
