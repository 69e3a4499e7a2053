"""The sums of an 8-bit unit: bit for bit those that an H200 gave."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from course_lib.precision import unit_matmul

RECORDED = Path(__file__).parents[2] / "notebooks" / "data" / "fp8_sums_h200.json"
SUMS: dict[str, Any] = json.loads(RECORDED.read_text())["sums"]


def factor(kind: str, name: str) -> torch.Tensor:
    raw = bytearray(base64.b64decode(SUMS[kind][name]))
    return torch.frombuffer(raw, dtype=torch.float8_e4m3fn).view(3, -1)


@pytest.mark.parametrize("terms", [32, 128, 256, 1024, 4096])
@pytest.mark.parametrize(("way", "moved"), [("fast", 0), ("moved", 128)])
@pytest.mark.parametrize("kind", list(SUMS))
def test_the_sums_of_an_h200(kind: str, way: str, moved: int, terms: int) -> None:
    a, b = factor(kind, "a")[:, :terms], factor(kind, "b")[:, :terms]
    found = torch.tensor(SUMS[kind][way][str(terms)])
    assert torch.equal(unit_matmul(a, b, moved), found)
    if terms >= 256:  # and not those of float32
        assert not torch.equal(a.float() @ b.float().t(), found)


def test_small_sums_are_exact() -> None:
    """Products whose exponents are close need no more than 14 bits, wherever they lie."""
    for size in (2.0**-6, 1.0, 2.0**6):
        x = torch.full((2, 20), size).to(torch.float8_e4m3fn)
        assert torch.equal(unit_matmul(x, x), torch.full((2, 2), 20 * size**2))


def test_a_term_below_the_last_bit_is_lost() -> None:
    x = torch.ones(1, 2)
    x[0, 0] = 2.0**7
    for small, kept in ((2.0, True), (1.0, False)):  # 2¹⁴ + 2, which needs 14 bits; 2¹⁴ + 1, 15
        y = torch.tensor([[2.0**7, small]]).to(torch.float8_e4m3fn)
        total = unit_matmul(x.to(torch.float8_e4m3fn), y).item()
        assert total == 2.0**14 + (small if kept else 0)
