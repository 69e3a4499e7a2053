"""Scales: right way round, zero and overflow handled, blocks kept apart, ranks agreed."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from course_lib.comm import CommError
from course_lib.precision.formats import E4M3FN, E5M2, Format, round_to
from course_lib.precision.recipes import (
    BlockScaling,
    CurrentScaling,
    DelayedScaling,
)
from course_lib.precision.scaling import (
    Scaled,
    quantize_now,
    scale_for,
)

TWO = pytest.mark.parametrize("format", [E4M3FN, E5M2], ids=lambda f: f.name)
BLOCKS = [None, (1, 128), (128, 128), (3, 5), (1, 1)]


def matrix(rows: int, columns: int, size: float = 1.0, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, columns, generator=generator) * size


def by_hand(x: torch.Tensor, format: Format, block: tuple[int, int]) -> torch.Tensor:
    """What quantizing must give, one block after the other, with our own rounding."""
    out = torch.empty_like(x)
    for r in range(0, x.shape[0], block[0]):
        for c in range(0, x.shape[1], block[1]):
            part = x[r : r + block[0], c : c + block[1]]
            scale = part.abs().max() / format.largest
            rounded = round_to(format, part / scale, saturate=True) * scale
            out[r : r + block[0], c : c + block[1]] = rounded
    return out


@TWO
@pytest.mark.parametrize("block", BLOCKS, ids=str)
@pytest.mark.parametrize("size", [1e-26, 1e-6, 1.0, 1e30])
def test_each_block_is_rounded_by_its_own_largest(format: Format, block: Any, size: float) -> None:
    x = matrix(21, 150, size)
    scaled = quantize_now(x, format, block)
    torch.testing.assert_close(
        scaled.dequantize(), by_hand(x, format, block or (21, 150)), rtol=1e-6, atol=0
    )
    rows, columns = block or (21, 150)
    assert scaled.scale.shape == (math.ceil(21 / rows), math.ceil(150 / columns))
    assert scaled.nbytes == x.numel() + 4 * scaled.scale.numel()


@TWO
def test_error_is_half_a_spacing(format: Format) -> None:
    x = matrix(64, 256) * torch.logspace(-8, 0, 256)
    scaled = quantize_now(x, format)
    error = (scaled.dequantize() - x).abs()
    flat = format.smallest_subnormal * scaled.scale
    assert (error <= torch.maximum(x.abs() * format.epsilon, flat) * 0.5001).all()
    largest = scaled.data.float().abs().max()
    assert float(largest) == format.largest  # an inverted scale would be far from it


def test_an_outlier_costs_its_own_block_alone() -> None:
    x = matrix(4, 256, 1e-5)
    x[1, 3] = 100.0
    one, blocks = (quantize_now(x, E4M3FN, b).dequantize() for b in (None, (1, 128)))
    elsewhere = torch.ones_like(x, dtype=torch.bool)
    elsewhere[1, :128] = False
    assert (one[elsewhere] == 0).all()
    assert ((blocks - x)[elsewhere].abs() <= 0.07 * x[elsewhere].abs() + 1e-9).all()


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_zeros_stay_zeros_and_overflow_is_seen(block: Any) -> None:
    for x in (torch.zeros(5, 7), torch.full((5, 7), 1e-44), torch.zeros(0, 7), torch.zeros(5, 0)):
        result = quantize_now(x, E4M3FN, block).dequantize()
        assert result.shape == x.shape and (result == 0).all()
    for bad in (torch.inf, -torch.inf, torch.nan):
        x = torch.ones(256, 256)
        x[200, 200] = bad
        assert quantize_now(x, E4M3FN, block).dequantize()[200, 200].isnan()


def test_transposed_is_the_same_memory() -> None:
    scaled = quantize_now(matrix(130, 70), E4M3FN, (1, 32))
    turned = scaled.t()
    assert torch.equal(turned.dequantize(), scaled.dequantize().t())
    assert turned.data.data_ptr() == scaled.data.data_ptr()


def test_recipes_give_both_forms_for_the_sums() -> None:
    x = matrix(300, 200)
    for recipe, block in ((CurrentScaling(), None), (BlockScaling(), (1, 128))):
        rows, columns = recipe.scalers().input(x)
        assert torch.equal(rows.dequantize(), quantize_now(x, E4M3FN, block).dequantize())
        turned = quantize_now(x.t(), E4M3FN, block).dequantize()
        assert torch.equal(columns.dequantize(), turned)
    square, turned = BlockScaling().scalers().weight(x)
    assert square.scale.shape == (3, 2)
    assert torch.equal(turned.dequantize(), square.dequantize().t())
    assert CurrentScaling().scalers().gradient(x)[0].data.dtype == torch.float8_e5m2
    assert BlockScaling().scalers().gradient(x)[0].data.dtype == torch.float8_e4m3fn


# --- delayed ----------------------------------------------------------------------------------
def used_scale(scaler: Any, amax: float) -> float:
    """The scale that a tensor with this largest number gets."""
    return float(scaler(torch.tensor([[amax, -amax / 2]]))[0].scale)


def test_delayed_scales_are_of_the_steps_before() -> None:
    recipe = DelayedScaling(length=3)
    scaler = recipe.scalers().input

    def step(*amaxes: float) -> list[float]:
        scales = [used_scale(scaler, amax) * 448 for amax in amaxes]
        recipe.step()
        return scales

    assert step(2.0, 5.0) == pytest.approx([2.0, 5.0])  # nothing is known: current scaling
    assert step(1.0) == pytest.approx([5.0])
    assert step(70.0) == pytest.approx([5.0])
    assert step(1.0, 1.0) == pytest.approx([70.0, 70.0])
    assert math.isnan(step(float("nan"))[0]) and math.isinf(step(float("inf"))[0])
    # Neither has entered the history: 70 is the step before the last.
    assert step(1.0) == pytest.approx([70.0])
    assert step(1.0) == pytest.approx([70.0])
    assert step(1.0) == pytest.approx([1.0])  # 70 is four steps ago


def test_delayed_clips_what_has_grown_and_survives_zeros() -> None:
    recipe = DelayedScaling()
    scaler = recipe.scalers().weight
    scaler(torch.ones(1, 1))
    recipe.step()
    assert float(scaler(torch.full((1, 1), 9.0))[0].dequantize()) == pytest.approx(1.0)
    fresh = DelayedScaling()
    scaler = fresh.scalers().weight
    scaler(torch.zeros(2, 2))
    fresh.step()
    assert used_scale(scaler, 1e-9) == pytest.approx(1e-9 / 448)  # zeros have told nothing


def test_delayed_goes_on_from_its_state() -> None:
    recipe, again = DelayedScaling(length=4), DelayedScaling(length=4)
    scalers, others = recipe.scalers(), again.scalers()
    for amax in (3.0, 8.0, 2.0):
        for scaler in scalers:
            used_scale(scaler, amax)
        recipe.step()
    used_scale(others.input, 100.0)
    again.step()  # what it saw before is forgotten
    again.load_state_dict(recipe.state_dict())
    for mine, other in zip(scalers, others, strict=True):
        assert used_scale(mine, 1.0) == used_scale(other, 1.0)
    assert used_scale(others.input, 1.0) == pytest.approx(8 / 448)
    with pytest.raises(CommError, match="3 tensors"):
        again.load_state_dict({"amax": [[1.0]]})


@pytest.mark.parametrize("world", [1, 2, 3])
def test_delayed_histories_agree_over_the_ranks(ranks: Any, world: int) -> None:
    def run(group: Any) -> Any:
        recipe = DelayedScaling(group)
        layers = [recipe.scalers() for _ in range(2)]
        for step in range(3):
            for number, scalers in enumerate(layers):
                for scaler in scalers:
                    used_scale(scaler, 1.0 + (group.rank + step) % 3 + 10 * number)
            recipe.step()
        events = [e for e in group.ledger.events if e.op == "all_reduce"]
        scales = [used_scale(scaler, 0.5) for scalers in layers for scaler in scalers]
        return recipe.state_dict(), scales, [(e.payload, e.sent) for e in events]

    results = ranks(run, world)
    states, scales, events = zip(*results, strict=True)
    assert all(state == states[0] for state in states)
    most = [max(1.0 + (rank + step) % 3 for rank in range(world)) for step in range(3)]
    assert states[0]["amax"] == [most] * 3 + [[10 + m for m in most]] * 3
    assert all(s == scales[0] for s in scales)
    sent = 2 * (world - 1) / world * 24
    assert all(e == [(24, sent)] * 3 for e in events)


@pytest.mark.parametrize("sick", [0, 1])
def test_an_overflow_on_one_rank_enters_no_history(ranks: Any, sick: int) -> None:
    """The backend's maximum of NaN and a number is, on some rank, the number."""

    def run(group: Any) -> Any:
        recipe = DelayedScaling(group)
        scaler = recipe.scalers().input
        for amax in (3.0, math.nan if group.rank == sick else 5.0):
            used_scale(scaler, amax)
            recipe.step()
        return recipe.state_dict()["amax"][0]

    assert ranks(run, 2) == [[3.0], [3.0]]


def test_scale_for_keeps_the_shape() -> None:
    amax = torch.tensor([[0.0, 448.0], [1e-45, torch.nan]])
    scale = scale_for(amax, E4M3FN)
    assert scale[0].tolist() == [1.0, 1.0] and scale[1, 0] > 0 and scale[1, 1].isnan()
    assert isinstance(quantize_now(amax, E4M3FN), Scaled)
