"""The reduce-scatter by messages: the sums of one process, and an input that stays as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from course_lib.comm import Group
from course_lib.comm.algorithms.pairwise import pairwise_reduce_scatter

Ranks = Callable[..., list[Any]]


def sample(rank: int, count: int) -> torch.Tensor:
    made = torch.Generator().manual_seed(rank)
    return torch.randn(count, generator=made, dtype=torch.float64)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("op", ["sum", "avg"])
def test_sums_are_right_and_the_input_stays(ranks: Ranks, size: int, op: str) -> None:
    def job(group: Group) -> tuple[torch.Tensor, bool]:
        given = sample(group.rank, 96 * group.size)
        before, output = given.clone(), given.new_empty(96)
        pairwise_reduce_scatter(output, given, group, op).wait()
        return output, torch.equal(given, before)

    exact = torch.stack([sample(rank, 96 * size) for rank in range(size)]).sum(0)
    exact = exact / size if op == "avg" else exact
    for index, (output, stayed) in enumerate(ranks(job, size)):
        torch.testing.assert_close(output, exact.chunk(size)[index], rtol=1e-13, atol=1e-13)
        assert stayed, "what is under way to the others must not be written to"
