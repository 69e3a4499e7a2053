"""Newton-Schulz: singular values of about 1, the same directions, from a whole or from parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from course_lib.comm import CommError, Group
from course_lib.parallel import newton_schulz, newton_schulz_flops, sharded_newton_schulz

Ranks = Callable[..., list[Any]]


def matrix(rows: int, columns: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(rows + columns)
    return torch.randn(rows, columns, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("shape", [(24, 24), (16, 40), (40, 16), (1, 9), (7, 1)])
def test_singular_values_come_near_1_and_directions_stay(shape: tuple[int, int]) -> None:
    given = matrix(*shape)
    made = newton_schulz(given, steps=9)
    left, _, right = torch.linalg.svd(given, full_matrices=False)
    inside = left.T @ made @ right.T  # diagonal, if the directions are the same
    values = inside.diagonal()
    assert (inside - values.diag()).abs().max() < 1e-9
    assert values.min() > 0.6 and values.max() < 1.3


def test_it_is_torchs_iteration_which_rounds_to_bfloat16() -> None:
    given = matrix(12, 30)
    weight = torch.nn.Parameter(torch.zeros_like(given))
    weight.grad = given.clone()
    torch.optim.Muon([weight], lr=1.0, weight_decay=0.0, momentum=0.0).step()
    assert (newton_schulz(given) + weight).abs().max() < 0.02


def test_zeros_stay_zeros_and_the_scale_of_a_matrix_does_not_count() -> None:
    assert newton_schulz(torch.zeros(3, 4)).abs().max() == 0
    given = matrix(6, 9)
    torch.testing.assert_close(newton_schulz(1000 * given), newton_schulz(given))


def test_operations_are_those_of_its_products() -> None:
    assert newton_schulz_flops((40, 16), steps=1) == 2 * 16 * 16 * 40 * 2 + 2 * 16**3


def test_other_than_a_matrix_is_refused() -> None:
    with pytest.raises(CommError, match=r"a tensor of shape \(2, 3, 4\)"):
        newton_schulz(torch.ones(2, 3, 4))


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("members", [(0, 1, 2), (2, 0)])
def test_parts_give_the_parts_of_the_whole(
    ranks: Ranks, dim: int, members: tuple[int, ...]
) -> None:
    def on_rank(world: Group) -> tuple[float, int] | None:
        others = [i for i in range(3) if i not in members]
        group = world.split([p for p in (members, others) if p], "dp")
        if world.rank not in members:
            return None
        whole = matrix(12, 30)
        size = whole.shape[dim] // group.size
        begin = group.index * size
        with group.ledger.record() as calls:
            mine = sharded_newton_schulz(whole.narrow(dim, begin, size), dim, group)
        expected = newton_schulz(whole).narrow(dim, begin, size)
        return float((mine - expected).abs().max()), calls.sent

    uncut = 30 if dim == 0 else 12
    n = len(members)
    for result in ranks(on_rank, 3):
        if result is not None:
            assert result[0] < 1e-11
            assert result[1] == pytest.approx(2 * (n - 1) / n * 8 * (5 * uncut**2 + 1), abs=64)


@pytest.mark.parametrize("size", [1e-4, 3e3])
def test_in_fp16_squares_neither_vanish_nor_overflow(ranks: Ranks, size: float) -> None:
    whole = (size * matrix(64, 8)).half()
    expected = newton_schulz(whole.double())

    def on_rank(group: Group) -> torch.Tensor:
        return sharded_newton_schulz(whole.narrow(0, 32 * group.index, 32), 0, group)

    for found in (newton_schulz(whole), torch.cat(ranks(on_rank, 2))):
        assert found.dtype == torch.float16
        torch.testing.assert_close(found.double(), expected, rtol=0, atol=0.02)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.int64])
def test_what_is_no_matrix_of_real_numbers_is_refused(ranks: Ranks, dtype: torch.dtype) -> None:
    with pytest.raises(CommError, match="a matrix of real numbers"):
        newton_schulz(torch.ones(2, 3, dtype=dtype))

    def on_rank(group: Group) -> int:
        for dim in (-2, -1, 2):
            with pytest.raises(CommError, match="whose dimensions are 0 and 1"):
                sharded_newton_schulz(torch.ones(2, 3), dim, group)
        return len(group.ledger.events)

    assert ranks(on_rank, 2) == [0, 0]
