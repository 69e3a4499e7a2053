"""What two values with equal digits have in common, and what tells others apart."""

from __future__ import annotations

import math
import sys

import pytest
import torch

from course_lib.replay import digest
from course_lib.trace import Refusal

ONES = torch.ones(4, dtype=torch.float64)


def nan(payload: int) -> torch.Tensor:
    return torch.tensor([0x7FF8000000000000 + payload]).view(torch.float64)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (torch.tensor(0.0), torch.tensor(-0.0)),
        (0.0, -0.0),
        (nan(0), nan(1)),
        (ONES, ONES.float()),
        (ONES, ONES.view(2, 2)),
        (torch.zeros(2, dtype=torch.int32), torch.zeros(2)),
        (torch.tensor([1.0, 2.0]), torch.tensor([2.0, 1.0])),
        (torch.empty(0, 3), torch.empty(3, 0)),
        ([ONES, ONES], [torch.cat([ONES, ONES])]),
        ((1, 23), (12, 3)),
        ({"a": 1}, {"b": 1}),
        ("1", 1),
        (None, ()),
    ],
)
def test_other_bits_have_other_digits(first: object, second: object) -> None:
    assert digest(first) != digest(second)


def test_every_single_bit_counts() -> None:
    values = torch.randn(9, dtype=torch.float64)
    seen = {digest(values)}
    for bit in range(9 * 64):
        changed = values.clone()
        changed.view(torch.uint8)[bit // 8] ^= 1 << bit % 8
        seen.add(digest(changed))
    assert len(seen) == 1 + 9 * 64


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.bfloat16, torch.float8_e4m3fn, torch.complex64, torch.bool]
)
def test_the_way_it_lies_in_memory_does_not_count(dtype: torch.dtype) -> None:
    values = torch.arange(6).view(2, 3).to(dtype)
    apart = torch.stack([values, values])[1].t().contiguous().t()
    assert not apart.is_contiguous()
    assert digest(apart) == digest(values)
    assert digest(values.clone()[:, :1]) == digest(values[:, :1].clone())


def test_equal_values_have_equal_digits() -> None:
    conjugate = torch.tensor([1 + 2j]).conj()
    assert digest(conjugate) == digest(conjugate.resolve_conj())
    assert digest(nan(1)) == digest(nan(1))
    assert digest(math.nan) == digest(math.nan)
    assert digest(ONES.clone().requires_grad_()) == digest(ONES)
    assert digest([ONES, {"a": (1, None)}]) == digest((ONES, {"a": [1, None]}))


def test_memory_that_was_looked_at_can_still_be_freed() -> None:
    values = torch.randn(100)
    digest(values)
    values.untyped_storage().resize_(0)


def test_a_tensor_of_several_pieces_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    values = torch.randn(10, 7).t()
    whole = digest(values)
    monkeypatch.setattr(sys.modules["course_lib.replay.digest"], "PIECE", 9)
    assert digest(values) == whole


@pytest.mark.parametrize(
    "value", [object(), [lambda: 0], torch.empty(3, device="meta"), torch.eye(2).to_sparse()]
)
def test_what_has_no_bits_is_refused(value: object) -> None:
    with pytest.raises(Refusal):
        digest(value)
