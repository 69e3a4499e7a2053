"""8-bit products: the GPU's own unit beside the emulated ones, whose every step is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from course_lib.comm import Group
from course_lib.precision import (
    BlockScaling,
    CurrentScaling,
    DelayedScaling,
    fp8_all_gather,
    fp8_linear,
    quantize_now,
    round_to,
    unit_matmul,
)
from course_lib.precision.formats import E4M3FN, E5M2
from course_lib.precision.fp8_matmul import choose_way, scaled_matmul
from course_lib.precision.scaling import quantize
from course_lib.precision.small_blocks import mx_quantize, nvfp4_quantize

RECIPES = {"current": CurrentScaling, "delayed": DelayedScaling, "block": BlockScaling}


def matrix(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


# --- on the GPU's own unit -----------------------------------------------------------------------
@pytest.fixture
def unit() -> torch.device:
    """A GPU that multiplies 8-bit floats."""
    if not torch.cuda.is_available():
        pytest.skip("needs a GPU; this machine has none")
    if torch.cuda.get_device_capability() < (8, 9):
        pytest.skip("needs a GPU of compute capability 8.9 or above: it has units for FP8")
    return torch.device("cuda")


@pytest.mark.gpu
@pytest.mark.parametrize("formats", [(E4M3FN, E4M3FN), (E5M2, E4M3FN), (E4M3FN, E5M2)],
                         ids=lambda pair: f"{pair[0].name} x {pair[1].name}")  # fmt: skip
@pytest.mark.parametrize("sizes", [(64, 32, 48), (5, 16, 32), (128, 256, 512)], ids=str)
def test_the_unit_computes_what_is_emulated(
    unit: torch.device, formats: Any, sizes: tuple[int, int, int]
) -> None:
    """To float32's precision or, on some GPUs, that of sums of 14 bits inside the unit."""
    rows, columns, inner = sizes
    a = quantize_now(matrix(rows, inner).to(unit), formats[0])
    b = quantize_now(matrix(columns, inner, seed=1).to(unit), formats[1])
    assert choose_way(a, b) == "scaled_mm"
    real, emulated = scaled_matmul(a, b), scaled_matmul(a, b, "emulated")
    assert real.dtype == torch.float32 and real.device == a.data.device
    size = a.dequantize().abs() @ b.dequantize().abs().t()  # of the sums' terms
    assert bool(((real - emulated).abs() <= size * 2**-12).all())


@pytest.mark.gpu
@pytest.mark.parametrize("terms", [32, 256, 4096])
@pytest.mark.parametrize("fast", [True, False])
def test_the_sums_of_hopper_bit_for_bit(unit: torch.device, terms: int, fast: bool) -> None:
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("needs a Hopper GPU (H100, H200): others add in another way")
    a, b = (matrix(16, terms, seed=seed).to(torch.float8_e4m3fn) for seed in (0, 1))
    one = torch.ones((), device=unit)
    real = torch._scaled_mm(
        a.to(unit), b.to(unit).t(), scale_a=one, scale_b=one, out_dtype=torch.float32,
        use_fast_accum=fast,
    )  # fmt: skip
    assert torch.equal(real.cpu(), unit_matmul(a, b, 0 if fast else 128))


@pytest.mark.gpu
def test_what_the_unit_cannot_do_is_emulated(unit: torch.device) -> None:
    x = matrix(32, 64).to(unit)
    one, odd = quantize_now(x, E4M3FN), quantize_now(x[:, :63], E4M3FN)
    wide, blocks = quantize_now(x, E5M2), quantize_now(x, E4M3FN, (1, 16))
    for pair in (
        (odd, odd),
        (wide, wide),
        (blocks, one),
        (mx_quantize(x), one),
        (nvfp4_quantize(x), nvfp4_quantize(x)),
    ):
        assert choose_way(*pair) == "emulated"
        assert scaled_matmul(*pair).shape == (32, 32)


@pytest.mark.gpu
def test_rowwise_scales_of_the_unit(unit: torch.device) -> None:
    """One scale a row: torch's own product, beside ours, which is emulated."""
    x, w = matrix(32, 64).to(unit), matrix(48, 64, seed=1).to(unit)
    a, b = quantize_now(x, E4M3FN, (1, 64)), quantize_now(w, E4M3FN, (1, 64))
    real = torch._scaled_mm(
        a.data, b.data.t(), scale_a=a.scale, scale_b=b.scale.t().contiguous(),
        out_dtype=torch.bfloat16,
    )  # fmt: skip
    ours = scaled_matmul(a, b)
    assert bool(((real.float() - ours).abs() <= ours.abs() * 2**-8 + 1e-2).all())


# --- on every device -----------------------------------------------------------------------------
def linear(group: Group, recipe: str) -> list[torch.Tensor]:
    """Output and gradients of one layer, all of 8-bit products."""
    x = matrix(32, 64).to(group.device).requires_grad_()
    weight = matrix(48, 64, seed=1).to(group.device).requires_grad_()
    kind = RECIPES[recipe]
    out = fp8_linear(x, weight, None, kind(group).scalers() if recipe == "delayed"
                     else kind().scalers())  # fmt: skip
    out.backward(matrix(32, 48, seed=2).to(group.device))
    found = [out.detach(), x.grad, weight.grad]
    assert all(t is not None and t.device == group.device for t in found)
    return [t.cpu() for t in found]


@pytest.mark.parametrize("recipe", list(RECIPES))
def test_a_layer_is_as_near_as_8_bits_are(everywhere: Callable[..., Any], recipe: str) -> None:
    x, weight, grad = matrix(32, 64), matrix(48, 64, seed=1), matrix(32, 48, seed=2)
    exact = [x @ weight.t(), grad @ weight, grad.t() @ x]
    for found in everywhere(linear, recipe):
        for mine, whole in zip(found, exact, strict=True):
            assert (mine - whole).norm() / whole.norm() < 0.08


def bits(group: Group) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Casts, and a gather of 8-bit shards, as raw bytes."""
    x = (matrix(16, 32) * 50).to(group.device)
    cast = quantize(x, E4M3FN, torch.full((1, 1), 0.25, device=x.device), (16, 32)).data
    shard = (matrix(4, 32, seed=group.index) * 3).to(group.device)
    gathered = fp8_all_gather(shard, group)
    assert gathered.data.device == group.device
    own = round_to(E4M3FN, x / 0.25, saturate=True)
    return cast.view(torch.uint8).cpu(), own.cpu(), gathered.dequantize().cpu()


def test_the_same_bits_on_every_device(everywhere: Callable[..., Any], place: Any) -> None:
    shards = torch.cat([matrix(4, 32, seed=i) * 3 for i in range(place.world)])
    expected = (matrix(16, 32) * 50 / 0.25).clamp(-448, 448).to(torch.float8_e4m3fn)
    for cast, own, gathered in everywhere(bits):
        assert torch.equal(cast, expected.view(torch.uint8))
        assert torch.equal(own, expected.float())
        assert bool(((gathered - shards).abs() <= shards.abs() * 2**-4 + 0.01).all())
