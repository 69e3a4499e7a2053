"""The reduce-scatter by messages: the sums of one process, an input that stays, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from course_lib.comm import CommError, Group
from course_lib.comm.algorithms.pairwise import pairwise_all_to_all, pairwise_reduce_scatter

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


def test_parameters_may_be_given_and_are_not_followed_by_autograd(ranks: Ranks) -> None:
    def job(group: Group) -> list[Any]:
        given = torch.nn.Parameter(torch.ones(2 * group.size))
        output = torch.empty(2)
        pairwise_reduce_scatter(output, given, group).wait()
        parts = [torch.nn.Parameter(torch.ones(2)) for _ in range(group.size)]
        taken = [torch.empty(2) for _ in range(group.size)]
        pairwise_all_to_all(taken, parts, group)
        return [output.tolist(), any(each.requires_grad for each in (output, *taken))]

    assert ranks(job, 3) == [[[3.0, 3.0], False]] * 3


def test_what_cannot_be_summed_is_refused_before_anything_is_sent(ranks: Ranks) -> None:
    def job(group: Group) -> list[str]:
        said = []
        whole, ints = torch.ones(4), torch.ones(4, dtype=torch.int64)
        for output, given, op in (
            (ints[:2].clone(), ints, "avg"),
            (ints[:2].clone(), whole, "sum"),
            (torch.ones(2, 2)[:, 0], whole, "sum"),
            (torch.empty(2, dtype=torch.float8_e4m3fn), whole, "sum"),
            (torch.empty(2), whole, "max"),
        ):
            with pytest.raises(CommError) as caught:
                pairwise_reduce_scatter(output, given, group, op)
            said.append(str(caught.value))
        assert not group.ledger.events
        return said

    for said in ranks(job, 2):
        assert "an average of integers" in said[0]
        assert "no lesser kind" in said[1]
        assert "strides (2,)" in said[2]
        assert "8-bit floats" in said[3]
        assert "`sum` or `avg`" in said[4]
