"""Every call between ranks, on parts of the world, and where the ranks do not ascend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from course_lib import comm
from course_lib.comm import Group, Mesh

Ranks = Callable[..., list[Any]]
PARTS = [[3, 1], [2, 0, 4]]  # of five ranks
OPS = {"sum": lambda x: x.sum(0), "avg": lambda x: x.mean(0), "max": lambda x: x.amax(0)}


def part_of(world: Group) -> Group:
    return world.split(PARTS, "dp")


def given(group: Group, size: int = 12) -> torch.Tensor:
    """What a member gives: its own, so that nobody's can be taken for another's."""
    return torch.arange(size, dtype=torch.float64) + 100 * (group.index + 1) + group.ranks[0]


def all_given(group: Group, size: int = 12) -> torch.Tensor:
    own = given(group, size) - 100 * (group.index + 1)
    return torch.stack([own + 100 * (index + 1) for index in range(group.size)])


def every_reduction(world: Group) -> None:
    group = part_of(world)
    for op, reduced in OPS.items():
        right = reduced(all_given(group))
        for call in (
            comm.all_reduce, comm.ring_all_reduce, comm.doubling_all_reduce,
            comm.halving_doubling_all_reduce, comm.all_reduce_from_messages,
        ):  # fmt: skip
            tensor = given(group)
            call(tensor, group, op)
            torch.testing.assert_close(tensor, right)
        part = torch.empty(12 // group.size, dtype=torch.float64)
        comm.reduce_scatter(part, given(group), group, op)
        torch.testing.assert_close(part, right.chunk(group.size)[group.index])
        ring = comm.ring_reduce_scatter(given(group), group, op)
        torch.testing.assert_close(ring, right.tensor_split(group.size)[group.index])
        if op != "max":
            comm.pairwise_reduce_scatter(part.zero_(), given(group), group, op).wait()
            torch.testing.assert_close(part, right.chunk(group.size)[group.index])
        for target in range(group.size):
            for call in (comm.reduce, comm.tree_reduce):
                tensor = given(group)
                call(tensor, target, group, op)
                if group.index == target:
                    torch.testing.assert_close(tensor, right)


def every_way_of_moving(world: Group) -> None:
    group = part_of(world)
    everything, size = all_given(group), group.size
    gathered = torch.empty(size * 12, dtype=torch.float64)
    comm.all_gather(gathered, given(group), group)
    assert gathered.equal(everything.flatten())
    ring = everything.flatten() * 0
    chunks = ring.tensor_split(size)
    chunks[group.index].copy_(given(group))
    comm.ring_all_gather(ring, group)
    assert ring.equal(everything.flatten())
    for source in range(size):
        for call in (comm.broadcast, comm.tree_broadcast):
            tensor = given(group)
            call(tensor, source, group)
            assert tensor.equal(everything[source])
    sizes = [[(3 * a + b) % 4 for b in range(size)] for a in range(size)]
    going, coming = sizes[group.index], [row[group.index] for row in sizes]
    rows = given(group, sum(going))
    right = [all_given(group, sum(sizes[a]))[a].split(sizes[a])[group.index] for a in range(size)]
    came = torch.empty(sum(coming), dtype=torch.float64)
    comm.all_to_all(came, rows, group, coming, going)
    assert came.equal(torch.cat(right))
    outputs = [torch.empty(n, dtype=torch.float64) for n in coming]
    comm.pairwise_all_to_all(outputs, list(rows.split(going)), group)
    assert torch.cat(outputs).equal(torch.cat(right))
    got = torch.empty(12, dtype=torch.float64)
    comm.exchange(given(group), group.next, got, group.previous, group)
    assert got.equal(everything[group.previous])
    comm.barrier(group)


def every_pair(world: Group) -> None:
    """Each autograd pair: its forward, and the gradients that its backward must give."""
    group = part_of(world)
    everything, size, index = all_given(group), group.size, group.index
    weight = torch.linspace(1, 2, 12, dtype=torch.float64) * (index + 1)

    def both(call: Any, tensor: torch.Tensor, factor: torch.Tensor) -> Any:
        tensor = tensor.clone().requires_grad_()
        out = call(tensor)
        (out * factor).sum().backward()
        return out.detach(), tensor.grad

    total = weight / (index + 1) * sum(range(1, size + 1))
    whole = everything[0]
    out, grad = both(lambda t: comm.copy_to_group(t, group), whole, weight)
    assert out.equal(whole)
    torch.testing.assert_close(grad, total)
    out, grad = both(lambda t: comm.reduce_from_group(t, group), given(group), weight)
    torch.testing.assert_close(out, everything.sum(0))
    assert grad.equal(weight)
    out, grad = both(lambda t: comm.split_to_group(t, 0, group), whole, weight[: 12 // size])
    assert out.equal(whole.chunk(size)[index])
    right = torch.cat([weight[: 12 // size] / (index + 1) * (i + 1) for i in range(size)])
    torch.testing.assert_close(grad, right)
    long = torch.linspace(1, 2, 12 * size, dtype=torch.float64)
    out, grad = both(lambda t: comm.gather_from_group(t, 0, group), given(group), long)
    assert out.equal(everything.flatten()) and grad.equal(long.chunk(size)[index])
    own = long * (index + 1)
    out, grad = both(lambda t: comm.all_gather_to_group(t, 0, group), given(group), own)
    assert out.equal(everything.flatten())
    torch.testing.assert_close(grad, long.chunk(size)[index] * sum(range(1, size + 1)))
    short = weight[: 12 // size]
    out, grad = both(lambda t: comm.reduce_scatter_in_group(t, 0, group), given(group), short)
    torch.testing.assert_close(out, everything.sum(0).chunk(size)[index])
    torch.testing.assert_close(grad, right)
    going = [index + 1] * size
    coming = [i + 1 for i in range(size)]
    rows = torch.full((sum(going),), float(index), dtype=torch.float64)
    factor = torch.cat([torch.full((n,), 10.0 * i + index) for i, n in enumerate(coming)]).double()
    out, grad = both(lambda t: comm.exchange_in_group(t, coming, going, group), rows, factor)
    assert out.tolist() == [float(i) for i, n in enumerate(coming) for _ in range(n)]
    assert grad.tolist() == [10.0 * index + i for i in range(size) for _ in range(index + 1)]


def hierarchy(world: Group) -> None:
    """Two nodes of two, named backwards: rows [3, 1] and [2, 0], columns [2, 3] and [0, 1]."""
    node, between = world.split([[3, 1], [2, 0]], "node"), world.split([[2, 3], [0, 1]], "between")
    for op, reduced in OPS.items():
        tensor = torch.arange(7, dtype=torch.float64) * (world.rank + 1)
        right = reduced(torch.stack([torch.arange(7).double() * (r + 1) for r in range(4)]))
        comm.hierarchical_all_reduce(tensor, node, between, op)
        torch.testing.assert_close(tensor, right)


def mesh_on_a_turned_world(world: Group) -> Any:
    """Places go by the index in the group that the mesh lies on."""
    turned = world.split([[2, 0, 3, 1]], "turned")
    mesh = Mesh(turned, {"dp": 2, "tp": 2})
    both = mesh["dp", "tp"]
    return turned.ranks, mesh.get_coordinate(), mesh["dp"].ranks, mesh["tp"].ranks, both.ranks


@pytest.mark.parametrize("program", [every_reduction, every_way_of_moving, every_pair])
def test_on_parts_whose_ranks_do_not_ascend(ranks: Ranks, program: Any) -> None:
    ranks(program, 5)


def test_hierarchical_over_turned_nodes(ranks: Ranks) -> None:
    ranks(hierarchy, 4)


def test_a_mesh_goes_by_the_index(ranks: Ranks) -> None:
    places = {2: (0, 0), 0: (0, 1), 3: (1, 0), 1: (1, 1)}
    for rank, (turned, place, dp, tp, both) in enumerate(ranks(mesh_on_a_turned_world, 4)):
        row, column = places[rank]
        assert turned == both == (2, 0, 3, 1) and place == {"dp": row, "tp": column}
        assert tp == ((2, 0), (3, 1))[row] and dp == ((2, 3), (0, 1))[column]
