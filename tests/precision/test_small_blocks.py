"""MX and NVFP4: scales by the specification, nothing lost on the way into bytes, products kept."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from course_lib.precision import (
    E2M1,
    E4M3FN,
    CurrentScaling,
    Format,
    MxScaling,
    Nvfp4Scaling,
    Scaled,
    fp8_linear,
    hadamard,
    mx_quantize,
    nvfp4_quantize,
    rotate,
    round_to,
    values,
)
from course_lib.precision.packed import pack, unpack
from course_lib.precision.scaling import block_amax
from course_lib.trace import Refusal

FORMATS = pytest.mark.parametrize("format", [E4M3FN, E2M1], ids=lambda f: f.name)


def matrix(rows: int, columns: int, size: float = 1.0, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, columns, generator=generator) * size


def numbers(scaled: Scaled) -> torch.Tensor:
    """The numbers without their scales."""
    return unpack(scaled.data) if scaled.data.dtype == E2M1.dtype else scaled.data.float()


def test_two_numbers_share_a_byte() -> None:
    every = values(E2M1)
    pairs = torch.cartesian_prod(every, every)
    data = pack(pairs)
    assert data.shape == (225, 1) and data.nbytes == 225 and torch.equal(unpack(data), pairs)
    first_is_low = pack(torch.tensor([[0.5, -6.0]])).view(torch.uint8)
    assert first_is_low.item() == 0xF1  # -6 is sign and 111, 0.5 is 001
    assert pack(torch.zeros(0, 4)).shape == (0, 2)
    with pytest.raises(ValueError, match="pad the rows with zeros"):
        pack(torch.zeros(3, 5))


@FORMATS
@pytest.mark.parametrize("round_up", [False, True])
def test_mx_scales_are_powers_of_two_by_the_rule(format: Format, round_up: bool) -> None:
    x = matrix(6, 80) * torch.logspace(-30, 30, 80)
    x[2, :32] = 0
    x[3, 0], x[4, 0] = 2.0**60, format.largest * 2.0**50  # where rules change
    scaled = mx_quantize(x, format=format, round_up=round_up)
    assert scaled.scale.dtype == torch.float8_e8m0fnu and scaled.scale.shape == (6, 3)
    assert scaled.nbytes == (480 if format == E4M3FN else 240) + 18
    top = math.floor(math.log2(format.largest))
    for row in range(6):
        for number, part in enumerate(x[row].split(32)):
            amax = float(part.abs().max())
            if amax:
                least = amax / format.largest
                up, down = math.ceil(math.log2(least)), math.floor(math.log2(amax)) - top
                expected = 2.0 ** (up if round_up else down)
                assert float(scaled.scale[row, number].float()) == expected
                mine = round_to(format, part / expected, True)
                assert torch.equal(numbers(scaled)[row, number * 32 :][:32], mine)
    assert (scaled.dequantize()[2, :32] == 0).all()


@FORMATS
def test_only_the_standards_rule_clips(format: Format) -> None:
    x = matrix(200, 64)
    top = block_amax(x, (1, 32)).repeat_interleave(32, 1)
    down, up = (mx_quantize(x, format=format, round_up=r) for r in (False, True))
    half = torch.maximum(x.abs() * format.epsilon, top * 2**-9) / 2
    if format == E2M1:
        half = torch.maximum(half, up.scale.float().repeat_interleave(32, 1) / 4)
    assert ((up.dequantize() - x).abs() <= half * 1.0001).all()
    share = 1 / 8 if format == E4M3FN else 1 / 4
    error = (down.dequantize() - x).abs()
    assert (error <= torch.maximum(x.abs() * share, half * 1.0001)).all()
    assert (error > x.abs() * share * 0.7)[x.abs() == top].any()
    x[7, 40] = torch.nan
    seen = mx_quantize(x, format=format).dequantize()
    assert seen[7, 32:].isnan().all() and seen[7, :32].isfinite().all()


def test_nvfp4_is_what_its_two_scales_say() -> None:
    x = matrix(6, 48) * torch.logspace(-3, 3, 48)
    x[1, :16] = 0
    scaled = nvfp4_quantize(x)
    outer = float(x.abs().max()) / 448 / 6
    assert scaled.outer is not None and float(scaled.outer) == pytest.approx(outer)
    assert scaled.scale.dtype == E4M3FN.dtype and scaled.scale.float().max() == 448
    assert scaled.nbytes == 6 * 24 + 18 + 4
    for row in range(6):
        for number, part in enumerate(x[row].split(16)):
            wanted = round_to(E4M3FN, part.abs().max() / 6 / scaled.outer)
            scale = scaled.scale[row, number].float()
            assert scale == wanted or (scale == E4M3FN.smallest_subnormal and wanted < scale)
            mine = round_to(E2M1, part / (scale * scaled.outer), True)
            assert torch.equal(numbers(scaled)[row, number * 16 :][:16], mine)
    assert (scaled.dequantize()[1, :16] == 0).all()
    turned = nvfp4_quantize(x, (16, 16)).t()
    assert torch.equal(turned.dequantize(), nvfp4_quantize(x, (16, 16)).dequantize().t())


def test_nvfp4_of_nothing_and_of_overflow() -> None:
    for x in (torch.zeros(5, 6), torch.full((5, 6), 1e-44), torch.zeros(0, 6)):
        assert (nvfp4_quantize(x).dequantize() == 0).all()
    x = torch.ones(2, 32)
    x[0, 3] = torch.inf
    assert nvfp4_quantize(x).dequantize()[0, :16].isnan().all()


def test_blocks_of_four_bits_are_closer_the_finer_their_scales() -> None:
    x = matrix(64, 512)

    def error(scaled: Scaled) -> float:
        return float((scaled.dequantize() - x).norm() / x.norm())

    mxfp4, nvfp4 = error(mx_quantize(x, format=E2M1, round_up=True)), error(nvfp4_quantize(x))
    assert error(mx_quantize(x)) < nvfp4 < mxfp4 < 0.15


def test_rounded_with_noise_a_tensor_has_its_mean() -> None:
    x, n = matrix(2, 64).repeat(2000, 1), 2000
    for quantizes, kind in (
        (nvfp4_quantize, {}),
        (mx_quantize, {"format": E2M1, "round_up": True}),
    ):
        noise = torch.rand(x.shape, generator=torch.Generator().manual_seed(1))
        mean = quantizes(x, noise=noise, **kind).dequantize().view(n, 2, 64).mean(0)
        inside = x[:2].abs() < block_amax(x[:2], (1, 16)).repeat_interleave(16, 1) * 0.9
        spacing = 2 * block_amax(x[:2], (1, 32)).repeat_interleave(32, 1) / 3
        assert ((mean - x[:2]).abs() <= 5 * spacing / 2 / n**0.5)[inside].all()
        plain = quantizes(x[:2], **kind).dequantize()
        assert (plain - x[:2]).abs().mean() > 5 * (mean - x[:2]).abs().mean()


def test_a_rotation_spreads_an_outlier_and_keeps_the_product() -> None:
    signs = torch.randint(0, 2, (16,), generator=torch.Generator().manual_seed(0)) * 2.0 - 1
    turn = hadamard(16, signs)
    assert torch.equal(turn @ turn.t(), torch.eye(16)) and (turn.abs() == 0.25).all()
    a, b = matrix(5, 40), matrix(7, 40, seed=1)
    a[2, 3] = 1000
    torch.testing.assert_close(
        rotate(a, turn) @ rotate(b, turn).t(), a @ b.t(), rtol=1e-5, atol=1e-3
    )
    assert rotate(a, turn).shape == (5, 48)
    assert rotate(a, turn)[2, :16].abs().max() < 253


RECIPES: dict[str, Any] = {
    "mxfp8": MxScaling(),
    "mxfp4": MxScaling(E2M1),
    "mxfp4, stochastic": MxScaling(E2M1, stochastic=True),
    "nvfp4": Nvfp4Scaling(),
    "nvfp4, plain": Nvfp4Scaling(stochastic=False, rotated=False),
}


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_a_linear_layer_computes_all_three_products(recipe: Any) -> None:
    x, weight, grad = matrix(48, 64), matrix(32, 64, seed=1), matrix(48, 32, seed=2)
    torch.manual_seed(0)
    found = []
    for which in (recipe, CurrentScaling()):
        a, w = x.clone().requires_grad_(), weight.clone().requires_grad_()
        out = fp8_linear(a, w, None, which.scalers())
        out.backward(grad)
        found.append((out.detach(), a.grad, w.grad))
    exact = x @ weight.t(), grad @ weight, grad.t() @ x
    for mine, eight, true in zip(*found, exact, strict=True):
        error = (mine - true).norm() / true.norm()
        assert error < (0.05 if recipe == MxScaling() else 0.3)
        assert (eight - true).norm() / true.norm() < 0.1


@pytest.mark.parametrize("size", [0, 3, -2, 12])
def test_a_hadamard_matrix_of_another_size_is_refused(size: int) -> None:
    with pytest.raises(Refusal, match="no power of two"):
        hadamard(size)
