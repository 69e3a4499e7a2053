"""The model computes what its papers say, and its formulas count what it has."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from course_lib.data import WindowSampler, load_corpus
from course_lib.model import (
    AdamW,
    ModelConfig,
    Transformer,
    cross_entropy,
    flops_per_token,
    generate,
    parameter_count,
)
from course_lib.model.formulas import stage_costs
from course_lib.model.transformer import rotary, rotate
from course_lib.trace import Refusal

SMALL = ModelConfig(layers=2, hidden=32, heads=4, kv_heads=2, ffn=48, sequence=16)


@pytest.mark.parametrize(("gated", "tied"), list(itertools.product([True, False], repeat=2)))
def test_parameters_are_as_many_as_the_formula_says(gated: bool, tied: bool) -> None:
    config = ModelConfig(layers=3, hidden=24, heads=4, kv_heads=2, ffn=40, gated=gated, tied=tied)
    model = Transformer(config)
    assert sum(p.numel() for p in model.parameters()) == parameter_count(config)


def test_operations_are_as_many_as_the_formula_says() -> None:
    model = Transformer(SMALL)
    tokens = torch.randint(0, 256, (3, 16))
    with FlopCounterMode(display=False) as counter:
        cross_entropy(model(tokens), tokens).backward()
    counted = counter.get_total_flops()
    # The counter does not look into the CPU's fused attention, so that part is left out here.
    attention = 6 * SMALL.layers * SMALL.hidden * 16
    assert counted == 3 * 16 * (flops_per_token(SMALL) - attention)


def test_biases_and_norms_of_heads_are_in_no_product() -> None:
    more = replace(SMALL, qkv_bias=True, qk_norm=True)
    assert parameter_count(more) > parameter_count(SMALL)
    assert flops_per_token(more) == flops_per_token(SMALL)
    assert stage_costs(more) == stage_costs(SMALL)


def test_a_later_token_changes_nothing_before_it() -> None:
    model = Transformer(SMALL).double()
    tokens = torch.randint(0, 256, (1, 16))
    other = tokens.clone()
    other[0, 9] = (other[0, 9] + 1) % 256
    before, after = model(tokens), model(other)
    torch.testing.assert_close(before[:, :9], after[:, :9], rtol=0, atol=1e-13)
    assert not torch.allclose(before[:, 9:], after[:, 9:])


def test_grouped_query_attention_is_attention_with_repeated_heads() -> None:
    grouped = Transformer(SMALL).double()
    config = ModelConfig(layers=2, hidden=32, heads=4, kv_heads=4, ffn=48, sequence=16)
    full = Transformer(config).double()
    state = grouped.state_dict()
    for name in [n for n in state if n.endswith(("key.weight", "value.weight"))]:
        heads = state[name].view(2, 8, 32)
        state[name] = heads.repeat_interleave(2, 0).reshape(32, 32)
    full.load_state_dict(state)
    tokens = torch.randint(0, 256, (2, 16))
    torch.testing.assert_close(grouped(tokens), full(tokens), rtol=1e-12, atol=1e-12)


def test_rotary_scores_depend_on_the_distance_alone() -> None:
    q, k = torch.randn(2, 1, 1, 1, 8, dtype=torch.float64)

    def score(at: int, other: int) -> float:
        turned_q = rotate(q, *rotary(SMALL, torch.tensor([at])))
        turned_k = rotate(k, *rotary(SMALL, torch.tensor([other])))
        return float((turned_q * turned_k).sum())

    assert score(3, 1) == pytest.approx(score(103, 101), abs=1e-12)
    assert score(3, 1) != pytest.approx(score(3, 2), abs=1e-6)


def test_weights_depend_on_the_name_alone() -> None:
    torch.manual_seed(1)
    one = Transformer(SMALL)
    torch.manual_seed(2)
    two = Transformer(SMALL)
    for name, value in one.state_dict().items():
        assert torch.equal(value, two.state_dict()[name]), name
    assert not torch.equal(one.head.weight, Transformer(SMALL, seed=1).head.weight)


def test_adamw_is_torchs() -> None:
    ours, theirs = (Transformer(SMALL).double() for _ in range(2))
    given = {"lr": 1e-2, "weight_decay": 0.1, "betas": (0.8, 0.95), "eps": 1e-7}
    pairs = ((AdamW, ours), (torch.optim.AdamW, theirs))
    optimizers = [kind(model.parameters(), **given) for kind, model in pairs]
    generator = torch.Generator().manual_seed(0)
    for _ in range(12):
        tokens = torch.randint(0, 256, (2, 17), generator=generator)
        for model, optimizer in zip((ours, theirs), optimizers, strict=True):
            optimizer.zero_grad()
            cross_entropy(model(tokens[:, :-1]), tokens[:, 1:]).backward()
            optimizer.step()
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-10, atol=1e-12)


def test_adamw_takes_a_complex_number_for_two() -> None:
    ours, theirs = (torch.nn.Parameter(torch.ones(3, dtype=torch.complex128)) for _ in range(2))
    generator = torch.Generator().manual_seed(0)
    optimizers = AdamW([ours], lr=0.1), torch.optim.AdamW([theirs], lr=0.1)
    for _ in range(3):
        gradient = torch.randn(3, dtype=torch.complex128, generator=generator)
        ours.grad, theirs.grad = gradient, gradient.clone()
        for optimizer in optimizers:
            optimizer.step()
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    "option", [{"lr": -1.0}, {"betas": (1.0, 0.9)}, {"betas": (0.9, -0.1)}, {"weight_decay": -0.1}]
)
def test_adamw_refuses_what_torchs_does(option: dict[str, Any]) -> None:
    for kind in (AdamW, torch.optim.AdamW):
        with pytest.raises(ValueError):
            kind([torch.nn.Parameter(torch.ones(1))], **option)


def test_adamw_leaves_parameters_without_a_gradient() -> None:
    used, unused = (torch.nn.Parameter(torch.ones(2)) for _ in range(2))
    optimizer = AdamW([used, unused])
    used.grad = torch.ones(2)
    optimizer.step()
    assert torch.equal(unused, torch.ones(2))
    assert not torch.equal(used, torch.ones(2))


@pytest.mark.slow
def test_a_tiny_model_learns() -> None:
    corpus = load_corpus(limit=1 << 20)
    config = ModelConfig(layers=2, hidden=48, heads=4, kv_heads=2, ffn=96, sequence=48)
    model = Transformer(config)
    optimizer = AdamW(model.parameters(), lr=1e-2)
    sampler = WindowSampler(corpus.train, 48, 16)
    losses = []
    for _ in range(60):
        inputs, targets = next(sampler)
        loss = cross_entropy(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(5.545, abs=0.2), "a fresh model guesses: ln 256"
    assert sum(losses[-5:]) / 5 < 3.2, "it has not even learned which bytes are frequent"


def test_generation_repeats_itself() -> None:
    model = Transformer(SMALL)
    text = generate(model, b"def ", 12, 16)
    assert text.startswith(b"def ")
    assert len(text) == 16
    assert text == generate(model, b"def ", 12, 16)


@pytest.mark.parametrize(
    "given", [(b"", 1, 16), (b"a", 1, 0), (b"a", 1, 16, 0.0), (b"a", 1, 16, -1.0)], ids=str
)
def test_what_no_text_can_be_made_of(given: Any) -> None:
    with pytest.raises(Refusal, match="at least one byte"):
        generate(Transformer(SMALL), *given)


@pytest.mark.parametrize("shape", [(0, 5), (3, 0)])
def test_a_batch_without_tokens(shape: tuple[int, int]) -> None:
    tokens = torch.zeros(shape, dtype=torch.int64)
    assert Transformer(SMALL)(tokens).shape == (*shape, 256)


def test_heads_that_do_not_divide_are_refused() -> None:
    with pytest.raises(ValueError, match="key-value heads"):
        ModelConfig(hidden=32, heads=4, kv_heads=3)
