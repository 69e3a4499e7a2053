"""How a Hopper GPU's 8-bit unit adds: 32 products at a time, and 14 bits of a running sum.

Notebook: 09 Mixed precision and FP8 (how many bits a sum keeps).
Source: DeepSeek-AI, "DeepSeek-V3" (2024), section 3.3.2, for the 14 bits and for moving sums to
float32 after 128 terms; the rest was found by comparing bits with an H200 (tests/gpu/test_fp8.py,
notebooks/data/fp8_sums_h200.json). Khattak and Mikaitis, "Accurate Models of NVIDIA Tensor Cores"
(2025), for the units of other GPUs.
Costs M·N·K products of float64, one by one: it is for looking, not for training.
The production version is the unit: `torch._scaled_mm`, with `use_fast_accum` as `moved=0` here.
"""

from __future__ import annotations

import torch

TOGETHER = 32  # products that are added in one go
BITS = 14  # that a sum keeps, its first one included


def unit_matmul(a_MK: torch.Tensor, b_NK: torch.Tensor, moved: int = 128) -> torch.Tensor:
    """The product a · bᵀ of 8-bit floats, bit for bit as the unit gives it.

    Args:
        a_MK: float8, without its scale.
        b_NK: float8, without its scale.
        moved: after so many terms the unit's sum is added to one in float32, and begins again at
            zero; 0 never does so (`use_fast_accum=True`).

    Returns:
        [M, N], float32.
    """
    total_MN = torch.zeros(len(a_MK), len(b_NK))
    terms = a_MK.shape[1]
    for begin in range(0, terms, moved or terms):
        part_MN = torch.zeros_like(total_MN, dtype=torch.float64)
        for first in range(begin, min(begin + (moved or terms), terms), TOGETHER):
            a, b = (x[:, first : first + TOGETHER].double().cpu() for x in (a_MK, b_NK))
            part_MN = _add(part_MN, a, b)
        total_MN = total_MN + part_MN.float()
    return total_MN


def _add(sum_MN: torch.Tensor, a_MK: torch.Tensor, b_NK: torch.Tensor) -> torch.Tensor:
    """Adds up to 32 products to a running sum.

    All are shifted to the largest exponent among them, and what then stands beyond the last bit is
    cut off, of each term before the addition and of the sum after it.
    """
    products = a_MK[:, None] * b_NK[None]
    factors = _exponent(a_MK)[:, None] + _exponent(b_NK)[None] - 1  # of a product, not normalised
    largest = torch.maximum(factors.amax(2), _exponent(sum_MN))
    total = _cut(products, largest[..., None]).sum(2) + _cut(sum_MN, largest)
    return _cut(total, _exponent(total))


def _exponent(x: torch.Tensor) -> torch.Tensor:
    """The smallest e with |x| below 2ᵉ; of zero one that is smaller than all others."""
    return torch.frexp(x)[1].where(x != 0, torch.full_like(x, -500, dtype=torch.int32))


def _cut(x: torch.Tensor, exponent: torch.Tensor) -> torch.Tensor:
    """What is left of x without the bits below the last of `BITS`, the first being 2ᵉ⁻¹."""
    last = torch.ldexp(torch.ones_like(x), exponent - BITS)
    return (x / last).trunc() * last
