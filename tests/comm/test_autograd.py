"""Conjugate pairs: gradients equal those of one process, in float64 to 1e-12."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from course_lib.comm import CommError, Group
from course_lib.comm.autograd import (
    all_gather_to_group,
    copy_to_group,
    exchange_in_group,
    gather_from_group,
    reduce_from_group,
    reduce_scatter_in_group,
    split_to_group,
)
from course_lib.trace import Ledger

Ranks = Callable[..., list[Any]]
SIZES = pytest.mark.parametrize("size", [1, 2, 3, 4])


def made(seed: int, *shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def close(found: torch.Tensor, wanted: torch.Tensor) -> None:
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)


def one_process(
    function: Callable[..., torch.Tensor], *tensors: torch.Tensor
) -> list[torch.Tensor]:
    """The gradients of a scalar function with respect to its tensors."""
    leaves = [tensor.clone().requires_grad_() for tensor in tensors]
    function(*leaves).backward()
    return [leaf.grad for leaf in leaves]  # type: ignore[misc]


@SIZES
def test_copy_and_reduce_make_a_sharded_pair_of_products(ranks: Ranks, size: int) -> None:
    """Megatron's MLP: the first weight cut by columns, the second by rows."""
    x, first, second = made(1, 5, 6), made(2, 6, 12), made(3, 12, 4)

    def run(group: Group) -> tuple[list[torch.Tensor], Ledger]:
        x_mine = x.clone().requires_grad_()
        a = first.chunk(size, 1)[group.index].clone().requires_grad_()
        b = second.chunk(size, 0)[group.index].clone().requires_grad_()
        hidden = torch.tanh(copy_to_group(x_mine, group) @ a)
        loss = reduce_from_group(hidden @ b, group).pow(2).sum()
        loss.backward()
        return [loss.detach(), x_mine.grad, a.grad, b.grad], group.ledger

    def whole(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (torch.tanh(x @ a) @ b).pow(2).sum()

    want = one_process(whole, x, first, second)
    for rank, (found, ledger) in enumerate(ranks(run, size)):
        close(found[0], whole(x, first, second))
        close(found[1], want[0])
        close(found[2], want[1].chunk(size, 1)[rank])
        close(found[3], want[2].chunk(size, 0)[rank])
        payloads = [call.payload for call in ledger.calls("all_reduce")]
        assert payloads == [5 * 4 * 8, 5 * 6 * 8], "one all-reduce forward, one backward"


@SIZES
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_split_and_gather(ranks: Ranks, size: int, dim: int) -> None:
    """Everybody holds x; each works on a part; everybody goes on with the whole."""
    x, weight = made(4, 12, 24, 12), made(5, 12, 24, 12)

    def run(group: Group) -> tuple[torch.Tensor, torch.Tensor]:
        mine = x.clone().requires_grad_()
        turned = mine.transpose(0, 2)  # not contiguous
        part = split_to_group(turned, dim, group)
        whole = gather_from_group(part.sin(), dim, group)
        (whole * weight).sum().backward()
        assert part.shape[dim] * size == turned.shape[dim]
        return whole.detach(), mine.grad

    (want,) = one_process(lambda x: (x.transpose(0, 2).sin() * weight).sum(), x)
    for whole, grad in ranks(run, size):
        close(whole, x.transpose(0, 2).sin())
        close(grad, want)


@SIZES
@pytest.mark.parametrize("dim", [0, 1, -2])
def test_all_gather_and_reduce_scatter(ranks: Ranks, size: int, dim: int) -> None:
    """Shards → whole → each its own function of the whole → the sum, sharded again."""
    x, weights = made(6, 12, 24, 5), made(7, size, 12, 24, 5)

    def run(group: Group) -> tuple[torch.Tensor, torch.Tensor, Ledger]:
        shard = x.chunk(size, dim)[group.index].clone().requires_grad_()
        whole = all_gather_to_group(shard, dim, group)
        mine = (whole * weights[group.index]).sin()
        total = reduce_scatter_in_group(mine, dim, group)
        total.pow(2).sum().backward()
        return total.detach(), shard.grad, group.ledger

    def reference(x: torch.Tensor) -> torch.Tensor:
        return (x * weights).sin().sum(0)

    (want,) = one_process(lambda x: reference(x).pow(2).sum(), x)
    for rank, (total, grad, ledger) in enumerate(ranks(run, size)):
        close(total, reference(x).chunk(size, dim)[rank])
        close(grad, want.chunk(size, dim)[rank])
        assert ledger.sent("all_gather") == 2 * (size - 1) * x.nbytes // size
        assert ledger.sent("reduce_scatter") == 2 * (size - 1) * x.nbytes // size


@SIZES
def test_exchange_and_its_inverse(ranks: Ranks, size: int) -> None:
    """Rows go where a table says, are worked on there, and their gradients come home."""
    counts = [[(2 * i + 3 * j) % 4 for j in range(size)] for i in range(size)]

    def rows(rank: int) -> torch.Tensor:
        return made(100 + rank, sum(counts[rank]), 3)

    def run(group: Group) -> tuple[torch.Tensor, torch.Tensor]:
        mine = rows(group.rank).requires_grad_()
        going, coming = counts[group.rank], [counts[i][group.rank] for i in range(size)]
        arrived = exchange_in_group(mine, coming, going, group)
        (arrived.sin() * (group.rank + 1)).sum().backward()
        return arrived.detach(), mine.grad

    results = ranks(run, size)
    for rank, (arrived, grad) in enumerate(results):
        sent_here = [rows(i).split(counts[i])[rank] for i in range(size)]
        assert arrived.equal(torch.cat(sent_here))
        scale = torch.tensor([j + 1.0 for j in range(size) for _ in range(counts[rank][j])])
        close(grad, rows(rank).cos() * scale.double()[:, None])


def test_refuses_dims_that_do_not_divide(ranks: Ranks) -> None:
    def run(group: Group) -> list[str]:
        said = []
        for function in (split_to_group, reduce_scatter_in_group):
            with pytest.raises(CommError) as caught:
                function(torch.ones(4, 5), 1, group)
            said.append(str(caught.value))
        for function in (split_to_group, gather_from_group, all_gather_to_group):
            with pytest.raises(CommError) as caught:
                function(torch.ones(4, 5), 2, group)
            said.append(str(caught.value))
        with pytest.raises(CommError) as caught:
            exchange_in_group(torch.ones(4, 5), [1, 1], [1, 1], group)
        return [*said, str(caught.value)]

    said = ranks(run, 2)[0]
    assert "2 does not divide 5" in said[0]
    assert "shape (4, 5) on rank 0" in said[1]
    assert all("it has 2 dims" in text for text in said[2:5])
    assert "4 rows" in said[5]


@SIZES
def test_a_gradient_is_differentiated_once_more(ranks: Ranks, size: int) -> None:
    """A penalty on the gradient of x, through Megatron's MLP on sequence shards."""
    x, first, second = made(1, 12, 6), made(2, 6, 12), made(3, 12, 6)

    def penalty(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        (grad,) = torch.autograd.grad(y.pow(2).sum(), x, create_graph=True)
        return grad.pow(2).sum()

    def run(group: Group) -> list[torch.Tensor]:
        x_mine = x.clone().requires_grad_()
        a = first.chunk(size, 1)[group.index].clone().requires_grad_()
        b = second.chunk(size, 0)[group.index].clone().requires_grad_()
        whole = all_gather_to_group(split_to_group(x_mine, 0, group), 0, group)
        hidden = torch.tanh(copy_to_group(x_mine, group) @ a) + torch.sin(whole @ a)
        shard = reduce_scatter_in_group(hidden @ b, 0, group)
        going = [len(rows) for rows in shard.tensor_split(size)]
        coming = [going[group.index]] * size
        away = exchange_in_group(shard, coming, going, group).sin()
        shard = exchange_in_group(away, going, coming, group)
        y = gather_from_group(shard, 0, group) + reduce_from_group(hidden @ b, group)
        penalty(x_mine, y).backward()
        return [x_mine.grad, a.grad, b.grad]

    def whole(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        y = (torch.tanh(x @ a) + torch.sin(x @ a)) @ b
        return penalty(x, y.sin() + y)

    want = one_process(whole, x, first, second)
    for rank, found in enumerate(ranks(run, size)):
        close(found[0], want[0])
        close(found[1], want[1].chunk(size, 1)[rank])
        close(found[2], want[2].chunk(size, 0)[rank])
