"""Rounding is torch's, bit for bit; ranges are what the specifications say."""

from __future__ import annotations

import pytest
import torch

from course_lib.precision.formats import (
    BF16,
    E2M1,
    E4M3FN,
    E5M2,
    E8M0,
    FP16,
    Format,
    round_to,
    values,
)

NUMBERS = pytest.mark.parametrize("format", [BF16, FP16, E4M3FN, E5M2], ids=lambda f: f.name)


def all_bf16() -> torch.Tensor:
    """Every bfloat16 there is: infinities, NaN, zeros and subnormals among them."""
    return torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)


def any_float32(count: int) -> torch.Tensor:
    """Random patterns of 32 bits: all exponents are equally likely, NaN and infinity occur."""
    generator = torch.Generator().manual_seed(0)
    bits = torch.randint(-(2**31), 2**31, (count,), generator=generator)
    return bits.to(torch.int32).view(torch.float32)


def near(format: Format, count: int) -> torch.Tensor:
    """Random float32 in the format's own range, and the points half-way between its numbers."""
    bits = any_float32(count).view(torch.int32)
    span = 2**format.exponent_bits + format.mantissa_bits
    low = 127 + format.smallest_exponent - format.mantissa_bits - 2
    exponent = ((bits >> 23) % (span + 4) + low).clamp(0, 255)
    inside = (bits & -0x7F800001 | exponent << 23).view(torch.float32)
    grid = values(format).double()
    halves = ((grid[1:] + grid[:-1]) / 2).float()
    step = torch.tensor([-torch.inf, torch.inf])
    return torch.cat([inside, halves, *(torch.nextafter(halves, s) for s in step)])


def same_bits(got: torch.Tensor, expected: torch.Tensor) -> None:
    """Equal as patterns of bits; for NaN, of which there are many, only the place counts."""
    assert got.dtype == torch.float32
    nan = expected.isnan()
    assert torch.equal(got.isnan(), nan)
    wrong = (got.view(torch.int32) != expected.view(torch.int32)) & ~nan
    assert not wrong.any(), f"{int(wrong.sum())}: {got[wrong][:5]} for {expected[wrong][:5]}"


@NUMBERS
def test_rounds_as_torch_casts(format: Format) -> None:
    for x in (all_bf16(), any_float32(1_000_000), near(format, 200_000)):
        same_bits(round_to(format, x), x.float().to(format.dtype).float())


@NUMBERS
def test_values_are_all_that_the_dtype_has(format: Format) -> None:
    codes = torch.arange(2 ** (8 * format.dtype.itemsize))
    kind = torch.uint8 if format.dtype.itemsize == 1 else torch.int16
    decoded = codes.to(kind).view(format.dtype).float()
    expected = decoded[decoded.isfinite()].unique()  # -0 and 0 are one
    assert torch.equal(values(format), expected)
    same_bits(round_to(format, expected), expected)


@NUMBERS
def test_limits_are_those_of_the_dtype(format: Format) -> None:
    limits = torch.finfo(format.dtype)
    assert (format.largest, format.smallest_normal) == (limits.max, limits.smallest_normal)
    assert format.smallest_subnormal == limits.smallest_normal * limits.eps
    assert format.epsilon == limits.eps


def test_limits_that_papers_give() -> None:
    assert (E4M3FN.largest, E5M2.largest) == (448.0, 57344.0)
    assert (E4M3FN.smallest_subnormal, E5M2.smallest_subnormal) == (2.0**-9, 2.0**-16)
    assert (E8M0.largest, E8M0.smallest_normal, E8M0.finite_codes) == (2.0**127, 2.0**-127, 255)
    assert values(E2M1)[7:].tolist() == [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    assert torch.equal(values(E8M0), torch.arange(255, dtype=torch.uint8).view(E8M0.dtype).float())


@NUMBERS
def test_what_is_too_large(format: Format) -> None:
    step = format.largest - float(values(format)[-2])
    last = torch.tensor(format.largest + step / 2, dtype=torch.float64)
    x = torch.tensor([format.largest * 1.0001, float(last), torch.inf, torch.nan])
    x = torch.cat([x, -x])
    clipped = round_to(format, x, saturate=True)
    assert torch.equal(clipped[[0, 1, 2, 4, 5, 6]].abs(), torch.full((6,), format.largest))
    assert clipped[[3, 7]].isnan().all() and (clipped[4:7] < 0).all()
    spilt = round_to(format, x, saturate=False)
    assert float(spilt[0]) == format.largest and float(spilt[4]) == -format.largest
    lost = spilt[[2, 6]]
    assert lost.isinf().all() if format.has_infinity else lost.isnan().all()


def test_ties_go_to_the_even_mantissa() -> None:
    x = torch.tensor([17.0, 18.0, 19.0, 17.0001, 2.0**-10, 3 * 2.0**-10, -(2.0**-11)])
    expected = torch.tensor([16.0, 18.0, 20.0, 18.0, 0.0, 2.0**-8, -0.0])
    same_bits(round_to(E4M3FN, x), expected)


@pytest.mark.parametrize("format", [BF16, E4M3FN, E2M1], ids=lambda f: f.name)
def test_with_noise_the_mean_is_the_number(format: Format) -> None:
    """Of n roundings, each a spacing apart at most, the mean is within 5 spacings/(2·√n)."""
    generator, n = torch.Generator().manual_seed(0), 4000
    x = torch.tensor([0.3, -0.3, 1.1, -2.6, 5.9, 0.01, format.smallest_subnormal / 7, 4.0, 0.0])
    noise = torch.rand(n, len(x), generator=generator)
    got = round_to(format, x.expand(n, -1), noise=noise)
    low, high = got.amin(0), got.amax(0)
    assert ((low <= x) & (x <= high)).all()
    numbers = values(format)
    assert torch.isin(got, numbers).all()
    above = torch.searchsorted(numbers, x).clamp(min=1)
    spacing = numbers[above] - numbers[above - 1]
    assert ((high - low == spacing) | (low == high)).all()
    assert ((got.double().mean(0) - x).abs() <= 5 * spacing / 2 / n**0.5).all()
    exact = torch.isin(x, numbers)
    assert (low == high)[exact].all() and exact.sum() >= 2


def test_noise_neither_mends_nan_nor_passes_the_largest() -> None:
    x = torch.tensor([torch.nan, torch.inf, -7.0, -0.0])
    got = round_to(E2M1, x, noise=torch.full_like(x, 0.999))
    assert got[0].isnan() and got[1:3].tolist() == [6.0, -6.0] and got[3].signbit()


def test_shapes_and_narrow_inputs_pass() -> None:
    x = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(1))
    assert round_to(E5M2, x[:, ::2].transpose(0, 2)).shape == (5, 2, 2)
    assert round_to(BF16, torch.tensor(1.0)).shape == () and round_to(BF16, x[:0]).numel() == 0
    same_bits(round_to(E4M3FN, x.half()), x.half().to(torch.float8_e4m3fn).float())


def test_a_scale_is_no_number() -> None:
    with pytest.raises(ValueError, match="powers of two"):
        round_to(E8M0, torch.ones(1))
