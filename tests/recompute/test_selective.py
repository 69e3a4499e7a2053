"""Selective checkpointing: products once, the rest twice, and what lies between in memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torch.utils.checkpoint as production

from course_lib.model import ModelConfig, Transformer
from course_lib.model.formulas import activation_bytes
from course_lib.model.transformer import cross_entropy
from course_lib.recompute.checkpoint import checkpoint, checkpoint_module
from course_lib.recompute.selective import (
    StepCost,
    keep_products,
    korthikanti_bytes,
    measure_step,
    selective,
)
from course_lib.trace import Refusal
from course_lib.trace.memory import LiveMemory
from tests.tiers import sampled

aten = torch.ops.aten
CONFIG = ModelConfig(layers=2, hidden=32, heads=4, kv_heads=4, ffn=80, vocabulary=64, sequence=64)
torchs = partial(
    production.checkpoint,
    use_reentrant=False,
    context_fn=partial(
        production.create_selective_checkpoint_contexts, [aten.mm.default, aten.addmm.default]
    ),
)


def attend(q_BHTC: torch.Tensor, k_BHTC: torch.Tensor, v_BHTC: torch.Tensor) -> torch.Tensor:
    """Attention whose scores are in memory, with dropout, as in the paper."""
    scores = q_BHTC @ k_BHTC.transpose(-1, -2) / q_BHTC.shape[-1] ** 0.5
    ahead = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    weights = scores.masked_fill(ahead, -torch.inf).softmax(-1)
    return F.dropout(weights, 0.1) @ v_BHTC


def model_with(how: Callable[..., Any] | None) -> Transformer:
    model = Transformer(CONFIG, seed=2).double()
    for block in model.blocks:
        block.attention.attend = attend
        if how is not None:
            checkpoint_module(block, how)
    return model


def loss_of(model: Transformer, step: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(step)
    tokens = torch.randint(CONFIG.vocabulary, (2, CONFIG.sequence + 1), generator=generator)
    return cross_entropy(model(tokens[:, :-1]), tokens[:, 1:])


def train(model: Transformer) -> dict[str, torch.Tensor]:
    torch.manual_seed(5)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for step in range(3):
        optimizer.zero_grad()
        loss_of(model, step).backward()
        optimizer.step()
    return {name: p.detach() for name, p in model.named_parameters()}


def cost_of(how: Callable[..., Any] | None) -> StepCost:
    model = model_with(how)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    return measure_step(lambda: loss_of(model))


@pytest.mark.parametrize(
    "policy",
    sampled([keep_products, lambda op: False, lambda op: op == aten.bmm.default], 3),
    ids=["products", "nothing", "scores"],
)
def test_training_with_dropout_is_the_same(policy: Any) -> None:
    got, expected = train(model_with(selective(policy))), train(model_with(None))
    torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-12)


def test_flops_and_memory_lie_between() -> None:
    none, full, some = cost_of(None), cost_of(checkpoint), cost_of(selective())
    c, tokens = CONFIG, 2 * CONFIG.sequence
    attention = 2 * 2 * tokens * c.sequence * c.hidden
    # The second run of a block ends with the input of its last product, which it does not need.
    products = 2 * tokens * (4 * c.hidden * c.hidden + 2 * c.hidden * c.ffn)
    assert some.flops - none.flops == c.layers * attention
    assert full.flops - none.flops == c.layers * (attention + products)
    # Kept: a block's input, and the results of all its products.
    results = tokens * (5 * c.hidden + 2 * c.ffn) * 8
    assert abs(some.kept - full.kept - c.layers * results) <= c.layers * 64
    assert full.peak < some.peak < none.peak
    assert some.kept < none.kept / 2


def test_fused_attention_is_counted_too() -> None:
    """On a CPU as well, which torch's counter does not know."""

    def flops(how: Callable[..., Any] | None) -> int:
        model = Transformer(CONFIG, seed=2)
        for block in model.blocks if how is not None else ():
            checkpoint_module(block, how)
        return measure_step(lambda: loss_of(model)).flops

    attention = 2 * 2 * 2 * CONFIG.sequence * CONFIG.sequence * CONFIG.hidden
    assert flops(selective()) - flops(None) == CONFIG.layers * attention


def test_costs_are_those_of_production() -> None:
    ours, theirs = cost_of(selective()), cost_of(torchs)
    assert ours.flops == theirs.flops
    assert ours.kept <= theirs.kept + CONFIG.layers * 64
    assert ours.peak <= theirs.peak + CONFIG.layers * 64


def test_what_is_kept_dies_with_backward() -> None:
    weight = torch.ones(20, 20, requires_grad=True)
    x = torch.ones(20, 20, requires_grad=True)
    with LiveMemory() as memory:
        selective()(lambda x: torch.tanh((x @ weight).sin() @ weight), x).sum().backward()
        x.grad = weight.grad = None
        assert memory.settle(0) == 0


def test_a_kept_result_changed_in_place_is_refused() -> None:
    weight = torch.ones(3, 3, requires_grad=True)

    def fn(x: torch.Tensor) -> torch.Tensor:
        return (x @ weight).mul_(2).tanh().exp()

    y = selective()(fn, torch.ones(2, 3))
    with pytest.raises(Refusal, match=r"\(2, 3\), changed in place"):
        y.sum().backward()


def test_a_second_run_with_more_products_is_refused() -> None:
    times = iter([1, 2])
    weight = torch.ones(3, 3, requires_grad=True)

    def fn(x: torch.Tensor) -> torch.Tensor:
        for _ in range(next(times)):
            x = x @ weight.detach()  # saves nothing
        return (x @ weight).exp()

    y = selective()(fn, torch.ones(2, 3))
    with pytest.raises(Refusal, match="none is left"):
        y.sum().backward()


def test_korthikantis_table() -> None:
    s, b, h, a = 2048, 4, 6144, 64  # the paper's 22B model
    form = partial(korthikanti_bytes, s, b, h, a)
    whole = s * b * h
    config = ModelConfig(layers=1, hidden=h, heads=a, kv_heads=a, ffn=4 * h)
    assert form() == pytest.approx(activation_bytes(config, b, s))
    assert form(tensor=8) == whole * (10 + 24 / 8 + 5 * a * s / h / 8)
    assert form(tensor=8, sequence_parallel=True) == pytest.approx(form() / 8)
    assert form(tensor=8, sequence_parallel=True, recompute="selective") == whole * 34 / 8
    assert form(recompute="full") == 2 * whole
    with pytest.raises(Refusal, match="none, selective and full"):
        form(recompute="some")


def test_a_second_backward_is_told_that_there_is_one() -> None:
    x = torch.randn(3, 3, requires_grad=True)
    loss = selective()(lambda x: (x @ x).exp(), x).sum()
    loss.backward(retain_graph=True)
    with pytest.raises(Refusal, match="it has one backward"):
        loss.backward()
