"""Mixtures of experts: routing, capacity, balance, and the same sums whichever way they go."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from course_lib.model import (
    ModelConfig,
    MoE,
    MoEConfig,
    Transformer,
    auxiliary_loss,
    cross_entropy,
    expert_parameters,
    flops_per_token,
    parameter_count,
    update_router_bias,
)
from course_lib.model.balance import balance_loss, moved_bias, z_loss
from course_lib.model.formulas import stage_costs
from course_lib.model.moe import every_expert, moe_layers
from course_lib.model.router import Router, drop_beyond, expert_capacity
from course_lib.precision.fp8 import fp8_linears
from course_lib.precision.recipes import BlockScaling, CurrentScaling
from course_lib.recompute import checkpoint_module

SIZES: dict[str, Any] = {"hidden": 12, "heads": 2, "kv_heads": 1, "ffn": 10, "vocabulary": 29,
                         "sequence": 8, "layers": 2}  # fmt: skip


def config_of(**moe: Any) -> ModelConfig:
    return ModelConfig(**SIZES, moe=MoEConfig(**{"experts": 5, **moe}))


def tokens_of(count: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, SIZES["hidden"], generator=generator, dtype=torch.float64)


def make(**moe: Any) -> MoE:
    torch.manual_seed(1)
    return MoE(config_of(**moe)).double()


@pytest.mark.parametrize("capacity", [None, 0.6])
@pytest.mark.parametrize("top_k", [1, 2, 3])
def test_the_chosen_experts_give_what_every_expert_would(
    top_k: int, capacity: float | None
) -> None:
    moe = make(top_k=top_k, capacity_factor=capacity)
    results = []
    for run in (moe.experts.run, every_expert):
        moe.experts.run = run
        moe.zero_grad()
        x_TD = tokens_of(14).requires_grad_()
        y_TD = moe(x_TD)
        (y_TD.pow(2).sum() + auxiliary_loss(moe)).backward()
        grads = {name: p.grad for name, p in moe.named_parameters()}
        results.append((y_TD.detach(), x_TD.grad, grads))
    torch.testing.assert_close(*results, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("top_k", [1, 2, 3])
def test_a_token_goes_to_its_highest_scores(top_k: int) -> None:
    router = Router(12, MoEConfig(5, top_k)).double()
    x_TD = tokens_of(20)
    routing = router(x_TD)
    for t in range(20):
        scores = [float(s) for s in (router.weight.detach() @ x_TD[t]).softmax(0)]
        best = sorted(range(5), key=lambda e: -scores[e])[:top_k]
        assert routing.chosen[t].tolist() == best
        total = sum(scores[e] for e in best) if top_k > 1 else 1.0
        expected = [scores[e] / total for e in best]
        assert routing.weights[t].tolist() == pytest.approx(expected, rel=1e-12)
    assert routing.counts.tolist() == [int((routing.chosen == e).sum()) for e in range(5)]


def test_one_expert_a_token_still_teaches_the_router() -> None:
    moe = make(top_k=1, balance=0.0, z=0.0)
    moe(tokens_of(14)).pow(2).sum().backward()
    assert moe.router.weight.grad is not None
    assert moe.router.weight.grad.abs().max() > 1e-8


def test_the_router_computes_in_float32_beside_narrow_experts() -> None:
    moe = MoE(config_of()).bfloat16()
    assert moe.router(tokens_of(6).bfloat16()).logits.dtype is torch.float32
    moe = MoE(config_of())
    x_TD = tokens_of(6).float()
    expected = moe.router(x_TD).logits
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(moe.router(x_TD).logits, expected)
        assert moe(x_TD).dtype is torch.float32


def test_an_expert_without_tokens_has_gradients_of_zero() -> None:
    moe = make(top_k=2, bias_rate=0.1)
    moe.router.bias[3] = -10
    moe(tokens_of(9)).sum().backward()
    for number, expert in moe.experts.items():
        for parameter in expert.parameters():
            assert parameter.grad is not None
            assert bool(parameter.grad.abs().max() == 0) == (number == "3")


@pytest.mark.parametrize("recipe", [CurrentScaling(), BlockScaling()], ids=repr)
def test_an_expert_without_tokens_in_8_bits(recipe: Any) -> None:
    moe = MoE(config_of(bias_rate=0.1))
    moe.router.bias[3] = -10
    assert len(fp8_linears(moe, recipe)) == 15, "the router is not one of them"
    moe(tokens_of(9).float()).sum().backward()
    used = {n[0] for n, p in moe.experts.named_parameters() if p.grad is not None and p.grad.any()}
    assert "3" not in used
    assert len(used) > 1
    assert all(p.grad is not None for p in moe.parameters())


def test_no_tokens_at_all() -> None:
    moe = make()
    y_TD = moe(tokens_of(0))
    (y_TD.sum() + auxiliary_loss(moe)).backward()
    assert y_TD.shape == (0, 12)
    for parameter in moe.parameters():
        assert parameter.grad is not None
        assert not parameter.grad.any()


# --- capacity ------------------------------------------------------------------------------------
def test_places_go_to_first_choices_in_the_order_of_tokens() -> None:
    generator = torch.Generator().manual_seed(3)
    chosen_TK = torch.rand(17, 5, generator=generator).topk(3).indices
    counts_E = torch.bincount(chosen_TK.flatten(), minlength=5)
    room, taken = 6, [0] * 5
    expected = chosen_TK.clone()
    for k in range(3):
        for t in range(17):
            expert = int(chosen_TK[t, k])
            if taken[expert] == room:
                expected[t, k] = 5
            else:
                taken[expert] += 1
    assert (expected == 5).sum() > 3
    assert torch.equal(drop_beyond(chosen_TK, counts_E, room), expected)
    assert torch.equal(drop_beyond(chosen_TK, counts_E, 17), chosen_TK)


def test_capacity_is_the_even_share_times_the_factor() -> None:
    assert expert_capacity(MoEConfig(4, 2, capacity_factor=1.0), 6) == 3
    assert expert_capacity(MoEConfig(4, 2, capacity_factor=1.25), 6) == 4
    with pytest.raises(ValueError, match="without a factor"):
        expert_capacity(MoEConfig(4, 2), 6)


def test_a_token_that_lost_its_experts_gets_nothing() -> None:
    moe = make(top_k=1, capacity_factor=1.0, bias_rate=0.1)
    moe.router.bias[2] = 10
    y_TD = moe(tokens_of(10))
    assert (y_TD.abs().sum(1) > 0).tolist() == [True] * 2 + [False] * 8
    assert moe.load is not None
    assert moe.load.tolist() == [0, 0, 10, 0, 0], "what was dropped is load too"


# --- balance -------------------------------------------------------------------------------------
def test_balance_loss_is_one_if_even_and_e_if_all_go_to_one() -> None:
    even_TE = torch.full((8, 4), 0.25)
    assert balance_loss(even_TE, torch.tensor([4] * 4), torch.tensor(8.0)) == 1
    one_TE = torch.eye(4)[[2] * 8]
    assert balance_loss(one_TE, torch.tensor([0, 0, 8, 0]), torch.tensor(8.0)) == 4


def test_auxiliary_losses_are_the_papers_formulas() -> None:
    moe = make(top_k=2, balance=0.3, z=0.7)
    x_TD = tokens_of(11)
    moe(x_TD)
    logits = x_TD @ moe.router.weight.detach().T
    scores = logits.softmax(-1)
    chosen = scores.topk(2).indices.flatten().tolist()
    balance = 5 * sum(chosen.count(e) / 22 * float(scores[:, e].sum()) / 11 for e in range(5))
    z = sum(float(row.exp().sum().log()) ** 2 for row in logits) / 11
    assert auxiliary_loss(moe).item() == pytest.approx(0.3 * balance + 0.7 * z, rel=1e-12)


def test_the_mean_over_parts_is_the_loss_of_the_whole() -> None:
    logits_TE = tokens_of(13)[:, :5]
    scores_TE = logits_TE.softmax(-1)
    counts_E, sizes = torch.tensor([3, 5, 0, 10, 8]), [7, 0, 4, 2]
    mean = torch.tensor(13 / 4, dtype=torch.float64)
    parts = zip(logits_TE.split(sizes), scores_TE.split(sizes), strict=True)
    found = [(balance_loss(s, counts_E, mean), z_loss(z, mean)) for z, s in parts]
    whole = torch.tensor(13.0, dtype=torch.float64)
    expected = balance_loss(scores_TE, counts_E, whole), z_loss(logits_TE, whole)
    for mine, right in zip(zip(*found, strict=True), expected, strict=True):
        torch.testing.assert_close(sum(mine) / 4, right, rtol=1e-12, atol=0)


def test_the_bias_chooses_and_does_not_weigh() -> None:
    moe = make(top_k=2, bias_rate=0.1)
    x_TD = tokens_of(20)
    plain = moe.router(x_TD)
    moe.router.bias.copy_(torch.tensor([-10.0, 0, 0, 0, 10]))
    steered = moe.router(x_TD)
    assert (steered.chosen[:, 0] == 4).all()
    assert not (steered.chosen == 0).any()
    torch.testing.assert_close(steered.scores, plain.scores, rtol=0, atol=0)
    two_TK = plain.scores.gather(-1, steered.chosen)
    torch.testing.assert_close(steered.weights, two_TK / two_TK.sum(-1, keepdim=True))


@pytest.mark.slow
def test_the_bias_evens_out_a_skewed_router() -> None:
    moe = make(top_k=2, balance=0.0, z=0.0, bias_rate=0.005)
    x_TD = tokens_of(200)
    with torch.no_grad():
        moe.router.weight.mul_(10)
        moe.router.bias[1] = 0.4
    loads = []
    for _ in range(80):
        moe(x_TD)
        assert moe.load is not None
        loads.append(moe.load.tolist())
        update_router_bias(moe)
        assert moe.load is None
    assert max(loads[0]) == 200, "every token goes to expert 1 first"
    assert max(loads[-1]) < 95, "400 choices are 80 for each of 5"
    assert moved_bias(torch.zeros(3), torch.tensor([1, 2, 3]), 0.5).tolist() == [0.5, 0, -0.5]


# --- in the whole model --------------------------------------------------------------------------
@pytest.mark.parametrize("gated", [True, False])
def test_parameters_are_as_many_as_the_formula_says(gated: bool) -> None:
    config = ModelConfig(**SIZES, gated=gated, moe=MoEConfig(5, 2))
    model = Transformer(config)
    assert sum(p.numel() for p in model.parameters()) == parameter_count(config)
    experts = sum(p.numel() for p in expert_parameters(model))
    assert parameter_count(config, active=True) == parameter_count(config) - experts * 3 // 5
    dense = ModelConfig(**SIZES, gated=gated)
    assert parameter_count(dense, active=True) == parameter_count(dense)


def test_operations_are_those_of_the_active_parameters() -> None:
    config = config_of(top_k=2)
    model = Transformer(config)
    tokens = torch.randint(0, 29, (3, 8))
    with FlopCounterMode(display=False) as counter:
        cross_entropy(model(tokens), tokens).backward()
    attention = 6 * config.layers * config.hidden * 8  # the counter leaves it out on CPUs
    assert counter.get_total_flops() == 3 * 8 * (flops_per_token(config) - attention)
    assert sum(stage_costs(config)) * 3 == flops_per_token(config)


def test_an_expert_has_its_values_whatever_else_there_is() -> None:
    one = Transformer(config_of(experts=5)).state_dict()
    two = Transformer(config_of(experts=8)).state_dict()
    shared = [name for name in one if ".experts." in name or "router" not in name]
    assert len(shared) > 30
    assert all(torch.equal(one[name], two[name]) for name in shared)
    dense = Transformer(ModelConfig(**SIZES)).state_dict()
    assert all(torch.equal(dense[name], one[name]) for name in dense if ".ffn." not in name)


def test_auxiliary_losses_are_taken_once() -> None:
    model = Transformer(config_of())
    tokens = torch.randint(0, 29, (2, 8))
    model(tokens)
    assert auxiliary_loss(model) > 0
    assert auxiliary_loss(model) == 0
    model.eval()
    model(tokens)
    assert auxiliary_loss(model) == 0
    assert auxiliary_loss(Transformer(ModelConfig(**SIZES))) == 0


def test_recomputation_changes_nothing_and_counts_once() -> None:
    found = []
    for recompute in (False, True):
        model = Transformer(config_of(bias_rate=0.1)).double()
        if recompute:
            for block in model.blocks:
                checkpoint_module(block)
        tokens = torch.randint(0, 29, (2, 8), generator=torch.Generator().manual_seed(4))
        (cross_entropy(model(tokens), tokens) + auxiliary_loss(model)).backward()
        assert auxiliary_loss(model) == 0, "nothing of the second forward is left"
        loads = [moe.load for moe in moe_layers(model)]
        assert all(load is not None and load.sum() == 2 * 8 * 2 for load in loads)
        found.append({name: p.grad for name, p in model.named_parameters()})
    torch.testing.assert_close(*found, rtol=1e-12, atol=1e-15)


def test_impossible_mixtures_are_refused() -> None:
    with pytest.raises(ValueError, match="3 experts a token"):
        MoEConfig(experts=2, top_k=3)
    with pytest.raises(ValueError, match="without room"):
        MoEConfig(capacity_factor=0.0)
    for factor in (math.nan, math.inf):
        with pytest.raises(ValueError, match="a number above 0"):
            MoEConfig(capacity_factor=factor)
    for weight in ("balance", "z", "bias_rate"):
        with pytest.raises(ValueError, match="made larger"):
            MoEConfig(**{weight: -0.1})
    with pytest.raises(ValueError, match="without one"):
        MoE(ModelConfig(**SIZES))
    with pytest.raises(ValueError, match="not built"):  # a router here knows no nodes
        Transformer(config_of(nodes=1))
