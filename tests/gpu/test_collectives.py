"""Every call of comm on every device: the sums are right, and stay on the device they were on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from course_lib import comm
from course_lib.comm import Group
from course_lib.trace import Ledger, Timeline, wire_bytes

COUNT = 24  # elements a rank; 1, 2 and 4 ranks divide it


def mine(group: Group, count: int = COUNT) -> torch.Tensor:
    """Of rank r: 100·r, 100·r + 1, ..."""
    return torch.arange(count, dtype=torch.float64, device=group.device) + 100 * group.index


def of_all(world: int, count: int = COUNT) -> torch.Tensor:
    """The same of every rank, as rows."""
    return torch.arange(count, dtype=torch.float64) + 100 * torch.arange(world)[:, None]


def told(tensors: dict[str, torch.Tensor], group: Group) -> dict[str, torch.Tensor]:
    """The tensors on the CPU, after a look at where they were."""
    for name, tensor in tensors.items():
        assert tensor.device == group.device, f"{name} is on {tensor.device}, not {group.device}"
    return {name: tensor.cpu() for name, tensor in tensors.items()}


# --- the backend's own ---------------------------------------------------------------------------
def backends_own(group: Group, waits: bool) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Every collective once; waited for in the end, or each at once."""
    n, found, works = group.size, {}, []

    def keep(name: str, tensor: torch.Tensor, work: comm.Work) -> None:
        found[name] = tensor
        works.append(work)

    how = {"async_op": not waits}
    for op in ("sum", "avg", "max", "min"):
        keep(op, total := mine(group), comm.all_reduce(total, group, op, **how))
    columns = mine(group).view(6, 4).t()  # not contiguous
    keep("columns", columns, comm.all_reduce(columns, group, **how))
    part = mine(group, COUNT // n)
    keep("scatter", part, comm.reduce_scatter(part, mine(group), group, "avg", **how))
    whole = torch.empty(n, COUNT, dtype=torch.float64, device=group.device)
    keep("gather", whole, comm.all_gather(whole, mine(group), group, **how))
    sizes = [(group.index + other) % 2 for other in range(n)]  # uneven, and some are empty
    rows = mine(group, 3 * sum(sizes)).view(-1, 3)
    got = torch.full_like(rows, -1)
    keep("exchange", got, comm.all_to_all(got, rows, group, sizes, sizes, **how))
    last = n - 1
    keep("broadcast", sent := mine(group), comm.broadcast(sent, last, group, **how))
    keep("reduce", summed := mine(group), comm.reduce(summed, last, group, **how))
    narrow = (mine(group, 8) / 64).to(torch.float8_e4m3fn)
    wide = torch.empty(n * 8, dtype=narrow.dtype, device=group.device)
    keep("float8", wide, comm.all_gather(wide, narrow, group, **how))
    for work in works:
        work.wait()
    comm.barrier(group)
    return told(found, group), group.ledger.to_dict()


@pytest.mark.parametrize("waits", [True, False], ids=["blocking", "under way"])
def test_the_backends_own(everywhere: Callable[..., Any], place: Any, waits: bool) -> None:
    all_of = of_all(place.world)
    for index, (found, _) in enumerate(everywhere(backends_own, waits)):
        assert torch.equal(found["sum"], all_of.sum(0))
        assert torch.equal(found["avg"], all_of.mean(0))
        assert torch.equal(found["max"], all_of[-1]) and torch.equal(found["min"], all_of[0])
        assert torch.equal(found["columns"], all_of.sum(0).view(6, 4).t())
        assert torch.equal(found["scatter"], all_of.mean(0).chunk(place.world)[index])
        assert torch.equal(found["gather"], all_of)
        assert torch.equal(found["broadcast"], all_of[-1])
        assert torch.equal(found["exchange"], exchanged(index, place.world))
        if index == place.world - 1:
            assert torch.equal(found["reduce"], all_of.sum(0))
        bytes_of = (of_all(place.world, 8) / 64).to(torch.float8_e4m3fn).view(torch.uint8)
        assert torch.equal(found["float8"].view(torch.uint8), bytes_of.flatten())


def exchanged(index: int, world: int) -> torch.Tensor:
    """What member `index` gets: a row of three from each member that has one for it."""
    rows = []
    for source in range(world):
        given = [(source + to) % 2 for to in range(world)]
        first = 3 * sum(given[:index])
        rows += [torch.arange(first, first + 3) + 100.0 * source] * given[index]
    return torch.stack(rows).double() if rows else torch.empty(0, 3, dtype=torch.float64)


def test_the_ledger_has_the_formulas_bytes(everywhere: Callable[..., Any], place: Any) -> None:
    """On every device the same; a detour through the host is said."""
    books = [Ledger.from_dict(book) for _, book in everywhere(backends_own, True)]
    for index, book in enumerate(books):
        for event in book.calls("all_reduce", "world"):
            assert (event.sent, event.received) == wire_bytes(
                "all_reduce", event.payload, place.world, index, event.item
            )
            assert event.by_host == (0 < place.gpus < place.world)
            assert event.begin <= event.waited <= event.end
    shared = 0 < place.gpus < place.world
    assert ("all_reduce by the host" in Timeline(books).table()) == shared


# --- from messages -------------------------------------------------------------------------------
def from_messages(group: Group, count: int) -> dict[str, torch.Tensor]:
    found = {}
    for reduction in (comm.ring_all_reduce, comm.doubling_all_reduce,
                      comm.halving_doubling_all_reduce):  # fmt: skip
        reduction(total := mine(group, count), group, "avg")
        found[reduction.__name__] = total
    comm.tree_broadcast(sent := mine(group, count), group.size - 1, group)
    comm.tree_reduce(summed := mine(group, count), 0, group)
    found |= {"tree_broadcast": sent} | ({"tree_reduce": summed} if group.index == 0 else {})
    part = torch.empty(count // group.size, dtype=torch.float64, device=group.device)
    comm.pairwise_reduce_scatter(part, mine(group, count), group).wait()
    wide = torch.empty(count // group.size, dtype=torch.float64, device=group.device)
    comm.pairwise_reduce_scatter(wide, mine(group, count).float(), group).wait()
    coming = [torch.empty(1 + i, dtype=torch.float64, device=group.device)[: group.index]
              for i in range(group.size)]  # fmt: skip
    coming = [mine(group, group.index) * 0 for _ in range(group.size)]
    comm.pairwise_all_to_all(coming, [mine(group, to) for to in range(group.size)], group)
    found |= {"scatter": part, "scatter_wide": wide, "all_to_all": torch.cat(coming)}
    if group.size > 1:  # large enough that a send waits for its receiver
        comm.exchange(mine(group, count), group.next, got := torch.zeros_like(total),
                      group.previous, group)  # fmt: skip
        found["exchange"] = got
    return told(found, group)


@pytest.mark.parametrize("count", [24, 600_000], ids=["short", "in pieces"])
def test_collectives_from_messages(everywhere: Callable[..., Any], place: Any, count: int) -> None:
    all_of = of_all(place.world, count)
    for index, found in enumerate(everywhere(from_messages, count)):
        for name in ("ring_all_reduce", "doubling_all_reduce", "halving_doubling_all_reduce"):
            assert torch.equal(found[name], all_of.mean(0)), name
        assert torch.equal(found["tree_broadcast"], all_of[-1])
        assert torch.equal(found.get("tree_reduce", all_of.sum(0)), all_of.sum(0))
        assert torch.equal(found["scatter"], all_of.sum(0).chunk(place.world)[index])
        assert torch.equal(found["scatter_wide"], all_of.sum(0).chunk(place.world)[index])
        assert torch.equal(found["all_to_all"], all_of[:, :index].flatten())
        if place.world > 1:
            assert torch.equal(found["exchange"], all_of[index - 1])


# --- groups --------------------------------------------------------------------------------------
def in_groups(group: Group) -> dict[str, Any]:
    mesh = comm.Mesh(group, {"dp": group.size // 2, "tp": 2})
    comm.all_reduce(along := mine(group), mesh["tp"])
    comm.hierarchical_all_reduce(total := mine(group), mesh["tp"], mesh["dp"])
    on_cpu = torch.ones(3)
    comm.all_reduce(on_cpu, mesh["tp"])
    assert on_cpu.device.type == "cpu"
    places = {mesh[axis].device for axis in ("dp", "tp")}
    assert places == {group.device}
    return {**told({"tp": along, "all": total}, group), "cpu": on_cpu}


def test_a_mesh_and_tensors_of_the_cpu(everywhere: Callable[..., Any], place: Any) -> None:
    """A lesson whose tensors never leave the CPU runs on a machine with GPUs as well."""
    if place.world == 1:
        pytest.skip("one rank has no axis of two")
    all_of = of_all(place.world)
    for index, found in enumerate(everywhere(in_groups)):
        pair = index // 2 * 2
        assert torch.equal(found["tp"], all_of[pair : pair + 2].sum(0))
        assert torch.equal(found["all"], all_of.sum(0))
        assert found["cpu"].tolist() == [2.0] * 3
