"""FP8 linear layers: three products, each of its own scales; training goes as in bfloat16."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import torch
from torch import nn

from course_lib.data import WindowSampler, load_corpus
from course_lib.model import ModelConfig, Transformer, cross_entropy
from course_lib.parallel import FSDP, Precision
from course_lib.precision.formats import E4M3FN, E5M2, Format, round_to
from course_lib.precision.fp8 import Fp8Linear, fp8_linear, fp8_linears
from course_lib.precision.fp8_matmul import choose_way, scaled_matmul
from course_lib.precision.recipes import (
    BlockScaling,
    CurrentScaling,
    DelayedScaling,
    Recipe,
    Scalers,
)
from course_lib.precision.scaling import quantize, quantize_now, whole

RECIPES: dict[str, Any] = {
    "current": CurrentScaling, "delayed": DelayedScaling, "block": BlockScaling,
}  # fmt: skip
ALL = pytest.mark.parametrize("recipe", list(RECIPES))


def matrix(*shape: int, size: float = 1.0, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * size


def rounded(x: torch.Tensor, format: Format) -> torch.Tensor:
    """What is left of a tensor with one scale, by our own rounding, float64."""
    scale = x.abs().max() / format.largest
    return round_to(format, x / scale, saturate=True).double() * scale.double()


def products(recipe: Recipe, x: torch.Tensor, weight: torch.Tensor, grad: torch.Tensor) -> Any:
    """Output, gradient of the input and of the weight."""
    x, weight = x.clone().requires_grad_(), weight.clone().requires_grad_()
    out = fp8_linear(x, weight, None, recipe.scalers())
    out.backward(grad)
    return out.detach(), x.grad, weight.grad


# --- the products ------------------------------------------------------------------------------
@pytest.mark.parametrize("left", [E4M3FN, E5M2], ids=lambda f: f.name)
@pytest.mark.parametrize("sizes", [(64, 32, 48), (5, 3, 7), (0, 4, 8)], ids=str)
def test_emulated_is_what_torch_computes(left: Format, sizes: tuple[int, int, int]) -> None:
    rows, columns, inner = sizes
    a, b = matrix(rows, inner, size=30.0), matrix(columns, inner, size=0.01, seed=1)
    pair = quantize_now(a, left), quantize_now(b, E4M3FN)
    if not a.numel():  # torch wants a scale
        assert scaled_matmul(*pair).shape == (0, columns)
        return
    assert choose_way(*pair) == "emulated"
    ours = scaled_matmul(*pair)
    torch.testing.assert_close(ours, scaled_matmul(*pair, "scaled_mm"), rtol=1e-5, atol=1e-6)
    exact = rounded(a, left) @ rounded(b, E4M3FN).t()
    torch.testing.assert_close(ours.double(), exact, rtol=1e-4, atol=1e-6)


def test_all_three_products_have_their_own_scales() -> None:
    x, weight, grad = matrix(40, 24, size=1e3), matrix(9, 24, size=1e-2, seed=1), matrix(40, 9)
    grad = grad * 1e-7
    out, grad_x, grad_weight = products(CurrentScaling(), x, weight, grad)
    q_x, q_w, q_g = rounded(x, E4M3FN), rounded(weight, E4M3FN), rounded(grad, E5M2)
    for got, expected in ((out, q_x @ q_w.t()), (grad_x, q_g @ q_w), (grad_weight, q_g.t() @ q_x)):
        bound = float(expected.abs().max()) * 1e-6
        torch.testing.assert_close(got.double(), expected, rtol=1e-5, atol=bound)


@ALL
def test_close_to_the_exact_products(recipe: str) -> None:
    x, weight, grad = matrix(300, 200), matrix(150, 200, seed=1), matrix(300, 150, seed=2)
    exact = x @ weight.t(), grad @ weight, grad.t() @ x
    got = products(RECIPES[recipe](), x, weight, grad)
    # E4M3 errs by 2^-4/√3 of a spacing at most, on average less; E5M2 by twice as much.
    bounds = (0.05, 0.08, 0.08) if recipe != "block" else (0.05, 0.05, 0.05)
    for ours, theirs, bound in zip(got, exact, bounds, strict=True):
        error = float((ours - theirs).norm() / theirs.norm())
        assert 0.005 < error < bound, error


@ALL
def test_zero_inputs_weights_and_gradients(recipe: str) -> None:
    made = RECIPES[recipe]()
    zeros, x, weight = torch.zeros(6, 8), matrix(6, 8), matrix(5, 8)
    for given in ((zeros, weight, matrix(6, 5)), (x, zeros[:5], matrix(6, 5)),
                  (x, weight, torch.zeros(6, 5)), (x[:0], weight, torch.zeros(0, 5))):  # fmt: skip
        assert all(t.isfinite().all() for t in products(made, *given))
    assert not products(made, x, weight, torch.zeros(6, 5))[2].any()


@ALL
def test_overflow_is_not_hidden(recipe: str) -> None:
    made = RECIPES[recipe]()
    scalers = made.scalers()
    bad = matrix(6, 8)
    bad[2, 3] = torch.inf
    weight = matrix(5, 8)
    for x in (matrix(6, 8), bad):
        out = fp8_linear(x, weight, None, scalers)
        if isinstance(made, DelayedScaling):
            made.step()
        assert bool(out[2].isnan().all()) == (x is bad)


def test_shapes_dtypes_and_bias() -> None:
    x = matrix(2, 3, 8).bfloat16().requires_grad_()
    weight, bias = nn.Parameter(matrix(5, 8)), nn.Parameter(matrix(5))
    out = fp8_linear(x, weight, bias)
    assert out.shape == (2, 3, 5) and out.dtype == torch.bfloat16
    out.sum().backward()
    assert x.grad is not None and x.grad.dtype == torch.bfloat16
    assert weight.grad is not None and weight.grad.dtype == torch.float32
    assert torch.equal(bias.grad, torch.full((5,), 6.0))
    frozen = fp8_linear(x.detach(), weight, bias)
    assert frozen.requires_grad and not fp8_linear(x.detach(), weight.detach()).requires_grad


@ALL
def test_the_input_is_kept_in_one_byte_a_number(recipe: str) -> None:
    kept: list[torch.Tensor] = []
    x, weight = matrix(256, 128).requires_grad_(), nn.Parameter(matrix(64, 128))
    scalers = RECIPES[recipe]().scalers()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        fp8_linear(x, weight, None, scalers)
    others = [t for t in kept if t.data_ptr() != weight.data_ptr()]
    scales = 2 * 128 if recipe == "block" else 1
    assert sum(t.nbytes for t in others) == 256 * 128 + 4 * scales


def test_sums_are_float32_under_autocast() -> None:
    x, weight, grad = matrix(16, 32), matrix(8, 32), matrix(16, 8)
    expected = products(CurrentScaling(), x, weight, grad)
    with torch.autocast("cpu", torch.bfloat16):
        got = products(CurrentScaling(), x, weight, grad)
    assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))


# --- the layers --------------------------------------------------------------------------------
CONFIG = ModelConfig(layers=2, hidden=64, heads=4, kv_heads=2, ffn=176, sequence=48)


def test_layers_are_replaced_in_place() -> None:
    model = Transformer(CONFIG)
    before, weights = model.state_dict(), list(model.parameters())
    names = fp8_linears(model, CurrentScaling(), keep=["head"])
    assert len(names) == 14 and names[0] == "blocks.0.attention.query"
    assert type(model.head) is nn.Linear
    assert isinstance(model.blocks[1].ffn.down, Fp8Linear)
    assert all(a is b for a, b in zip(weights, model.parameters(), strict=True))
    assert list(model.state_dict()) == list(before)
    with pytest.raises(ValueError, match="keep the linear layers output"):
        fp8_linears(Transformer(CONFIG), CurrentScaling(), keep=["output"])


def test_a_layer_in_two_places_stays_one() -> None:
    shared = nn.Linear(4, 4)
    model = nn.ModuleDict({"a": shared, "b": nn.Sequential(shared, nn.ReLU())})
    recipe = DelayedScaling()
    assert fp8_linears(model, recipe) == ["a", "b.0"]
    assert model["a"] is model["b"][0] and len(recipe.histories) == 3


# --- training ----------------------------------------------------------------------------------
@cache
def sampler() -> WindowSampler:
    return WindowSampler(load_corpus(limit=1 << 20).train, CONFIG.sequence, 16)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Small products are quicker so, and on a busy machine much quicker."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def train(recipe: Any = None) -> torch.Tensor:
    """Losses of the course's model; all but the FP8 products in bfloat16, weights float32."""
    model = Transformer(CONFIG)
    if recipe is not None:
        fp8_linears(model, recipe, keep=["head"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for step in range(60):
        tokens, targets = sampler().batch(step)
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = cross_entropy(model(tokens), targets)
        loss.backward()
        optimizer.step()
        if isinstance(recipe, DelayedScaling):
            recipe.step()
        losses.append(float(loss.detach()))
    return torch.tensor(losses)


@cache
def in_bf16() -> torch.Tensor:
    return train()


def apart(got: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """Relative distance of two curves, each point the mean of ten steps."""
    return (got.view(-1, 10).mean(1) / expected.view(-1, 10).mean(1) - 1).abs()


@pytest.mark.slow
@ALL
@pytest.mark.usefixtures("one_thread")
def test_training_goes_as_in_bf16(recipe: str) -> None:
    expected, got = in_bf16(), train(RECIPES[recipe]())
    assert float(expected[-10:].mean()) < 0.65 * float(expected[0])  # it has learned
    assert not torch.equal(expected, got)
    assert float(apart(got, expected).max()) < 0.005
    # A single step may jump, in bfloat16 as well: most do not.
    assert float(((got - expected).abs() / expected).quantile(0.9)) < 0.01


class NoScaling:
    """All numbers in E4M3 as they are: gradients below 2^-10 become zero."""

    def scalers(self) -> Scalers:
        def scaler(x: torch.Tensor) -> Any:
            scaled = quantize(x, E4M3FN, torch.ones(1, 1), whole(x))
            return scaled, scaled.t()

        return Scalers(scaler, scaler, scaler)


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_without_scales_training_does_not() -> None:
    """Embedding and output layer still learn; without the blocks that is soon not enough."""
    assert float(apart(train(NoScaling()), in_bf16()).max()) > 0.03


# --- with FSDP ---------------------------------------------------------------------------------
@pytest.mark.parametrize("recipe", ["current", "block"])
def test_under_fsdp_weights_may_come_and_go(ranks: Any, recipe: str) -> None:
    x, target = matrix(8, 6, 32), matrix(8, 6, 32, seed=1)

    def build() -> nn.Module:
        torch.manual_seed(0)
        model = nn.Sequential(*(nn.Sequential(nn.Linear(32, 32), nn.Tanh()) for _ in range(3)))
        fp8_linears(model, RECIPES[recipe]())
        return model

    def gradients(group: Any) -> Any:
        model = build()
        wrapped = FSDP(model, group, model, precision=Precision())
        (wrapped(x) - target).pow(2).mean().backward()
        return wrapped.full_gradients()

    alone = build()
    (alone(x) - target).pow(2).mean().backward()
    expected = {name: p.grad for name, p in alone.named_parameters()}
    for result in ranks(gradients, 2):
        torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-8)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu() -> None:
    given = matrix(64, 128), matrix(96, 128, seed=1), matrix(64, 96, seed=2) * 1e-4
    pair = [quantize_now(t.cuda(), E4M3FN) for t in given[:2]]
    native = torch.cuda.get_device_capability() >= (8, 9)
    assert choose_way(*pair) == ("scaled_mm" if native else "emulated")
    for recipe in (CurrentScaling(), BlockScaling()):
        expected = products(recipe, *given)
        for ours, theirs in zip(
            products(recipe, *(t.cuda() for t in given)), expected, strict=True
        ):
            size = float(theirs.abs().max())
            torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-3, atol=1e-3 * size)
