"""Groups, meshes and messages: who is where, what is booked, what is refused."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from course_lib.comm import CommError, Group, Mesh, Stream, exchange, irecv, isend, recv, send
from course_lib.comm.mesh import axis_lines, coordinates, rank_of
from course_lib.trace import Ledger

Ranks = Callable[..., list[Any]]


def test_coordinates_and_ranks_are_inverse() -> None:
    sizes = {"pp": 2, "dp": 3, "tp": 4}
    places = [coordinates(rank, sizes) for rank in range(24)]
    assert places[0] == {"pp": 0, "dp": 0, "tp": 0}
    assert places[1] == {"pp": 0, "dp": 0, "tp": 1}, "the last axis runs fastest"
    assert places[23] == {"pp": 1, "dp": 2, "tp": 3}
    assert [rank_of(place, sizes) for place in places] == list(range(24))


@pytest.mark.parametrize("axis", ["pp", "dp", "tp"])
def test_lines_of_an_axis_cover_the_grid(axis: str) -> None:
    sizes = {"pp": 2, "dp": 3, "tp": 4}
    lines = axis_lines(axis, sizes)
    assert sorted(rank for line in lines for rank in line) == list(range(24))
    for line in lines:
        assert [coordinates(rank, sizes)[axis] for rank in line] == list(range(sizes[axis]))
    assert axis_lines("tp", sizes)[0] == [0, 1, 2, 3]


def test_mesh_gives_each_rank_its_groups(ranks: Ranks) -> None:
    def run(world: Group) -> dict[str, Any]:
        mesh = Mesh(world, {"pp": 2, "dp": 1, "tp": 3})
        sums = {}
        for axis in mesh.sizes:
            tensor = torch.tensor([float(world.rank)])
            if mesh[axis].size > 1:
                exchange_all(tensor, mesh[axis])
            sums[axis] = tensor.item()
        return {
            "place": mesh.get_coordinate(),
            "ranks": {axis: mesh[axis].ranks for axis in mesh.sizes},
            "local": {axis: mesh.get_local_rank(axis) for axis in mesh.sizes},
            "sums": sums,
            "axes": {event.axis for event in world.ledger.events},
        }

    def exchange_all(tensor: torch.Tensor, group: Group) -> None:
        """A sum by passing everybody's number once round."""
        carried, total = tensor.clone(), tensor
        for _ in range(group.size - 1):
            incoming = torch.empty_like(carried)
            exchange(carried, group.next, incoming, group.previous, group)
            carried = incoming
            total += carried

    sizes = {"pp": 2, "dp": 1, "tp": 3}
    for rank, found in enumerate(ranks(run, 6)):
        place = coordinates(rank, sizes)
        assert found["place"] == found["local"] == place
        for axis in sizes:
            line = next(line for line in axis_lines(axis, sizes) if rank in line)
            assert found["ranks"][axis] == tuple(line)
            assert found["sums"][axis] == sum(line)
        assert found["axes"] == {"pp", "tp"}


def refusal(function: Callable[..., Any], *args: Any) -> str:
    with pytest.raises(CommError) as caught:
        function(*args)
    text = str(caught.value)
    assert [line.split(":")[0] for line in text.splitlines()] == ["asked", "found", "why"]
    return text


def test_groups_and_meshes_refuse(ranks: Ranks) -> None:
    def run(world: Group) -> list[str]:
        mesh = Mesh(world, {"tp": 2})
        return [
            refusal(Mesh, world, {"dp": 2, "tp": 2}),
            refusal(Mesh, world, {"dp": 0, "tp": 2}),
            refusal(mesh.__getitem__, ("tp", "node")),
            refusal(world.split, [[0], [0, 1]], "x"),
            refusal(world.split, [[0]], "x"),
            refusal(world.split, [[0, 1], []], "x"),
            refusal(send, torch.ones(1), 2, world),
            refusal(recv, torch.ones(1), -1, world),
            refusal(isend, torch.ones(1), world.rank, world),
            refusal(Stream, "send", torch.ones(1), world.rank, world),
        ]

    said = ranks(run, 2)[0]
    assert "dp 2 × tp 2 = 4 ranks" in said[0]
    assert "no such" not in said[0]
    assert "'node'" in said[2]
    assert "[0, 0, 1]" in said[3]
    assert "none is empty" in said[5]
    assert "between 0 and 1" in said[6]
    assert "reach itself" in said[8]
    assert "reach itself" in said[9]


class CallsOfTorch(TorchDispatchMode):
    """The names of torch's own operations that communicate, while it is entered."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "c10d":
            self.names.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("ranks", ["gloo"], indirect=True)  # the switch need not be told first
def test_cutting_a_part_of_the_world_is_booked(ranks: Ranks) -> None:
    """Both parts are cut at once, each in its way; comm books the one call that this takes."""

    def run(world: Group) -> dict[str, Any]:
        part = world.split([[0, 1, 2], [3, 4]], "part")
        with CallsOfTorch() as made:
            smaller = part.split([[2, 0], [1]] if world.rank < 3 else [[0, 1]], "smaller")
        return {
            "ranks": smaller.ranks,
            "seen": made.names,
            "ledger": world.ledger,
        }

    for rank, found in enumerate(ranks(run, 5)):
        assert found["ranks"] == [(2, 0), (1,), (2, 0), (3, 4), (3, 4)][rank]
        assert len(found["seen"]) == 1
        (event,) = found["ledger"].events
        assert (event.op, event.axis, event.group) == ("all_gather", "world", (0, 1, 2, 3, 4))
        assert (event.payload, event.sent) == (5 * 5 * 16, 4 * 5 * 16)
        assert not found["ledger"].open_events()


def test_world_needs_an_initialised_process() -> None:
    assert "not initialised" in refusal(Group.world)


def test_messages_of_every_kind(ranks: Ranks) -> None:
    dtypes = [torch.float64, torch.bfloat16, torch.int64, torch.bool, torch.float8_e4m3fn]

    def run(group: Group) -> tuple[list[bool], Ledger]:
        right = []
        for dtype in dtypes:
            out = torch.tensor([0, 1, 1, 0, 1]).to(dtype)
            incoming = torch.zeros(5).to(dtype)
            exchange(out, group.next, incoming, group.previous, group, step=1, chunk=2)
            right.append(incoming.double().equal(out.double()))
        grid = torch.arange(12.0).view(3, 4)
        into = torch.zeros(4, 3)
        exchange(grid.t(), group.next, into, group.previous, group)
        right.append(into.equal(grid.t()))
        columns = torch.zeros(3, 4)
        exchange(grid[:, ::2], group.next, columns[:, 1::2], group.previous, group)
        right.append(columns[:, 1::2].equal(grid[:, ::2]) and not columns[:, ::2].any())
        return right, group.ledger

    for rank, (right, ledger) in enumerate(ranks(run, 3)):
        assert all(right)
        sends = [event for event in ledger.events if event.op == "send"]
        receives = [event for event in ledger.events if event.op == "recv"]
        assert [e.sent for e in sends] == [e.payload for e in sends] == [40, 10, 40, 5, 5, 48, 24]
        assert [e.received for e in receives] == [e.sent for e in sends]
        assert {e.peer for e in sends} == {(rank + 1) % 3}
        assert [e.seq for e in sends] == list(range(7))
        assert [(e.step, e.chunk) for e in sends[:1]] == [(1, 2)]
        assert not ledger.open_events()
        assert ledger.sent() == sum(e.sent for e in sends)


def test_a_message_is_open_until_it_is_waited_for(ranks: Ranks) -> None:
    def run(group: Group) -> bool:
        if group.rank == 0:
            work = isend(torch.ones(3), 1, group)
        else:
            work = irecv(torch.empty(3), 0, group)
        was_open = group.ledger.open_events() == [work.event]
        work.wait()
        work.wait()
        return was_open and not group.ledger.open_events()

    assert ranks(run, 2) == [True, True]


def test_a_stream_is_one_message(ranks: Ranks) -> None:
    def run(group: Group) -> tuple[torch.Tensor, Ledger]:
        tensor = torch.arange(10.0) if group.rank == 0 else torch.zeros(10)
        stream = Stream(
            "send" if group.rank == 0 else "recv", tensor, 1 - group.rank, group, step=3
        )
        for piece in tensor.split(4):
            stream.post(piece)
        stream.wait()
        assert len(group.ledger.open_events()) == 1
        stream.wait_all()
        return tensor, group.ledger

    for rank, (tensor, ledger) in enumerate(ranks(run, 2)):
        assert tensor.equal(torch.arange(10.0))
        (event,) = ledger.events
        assert (event.op, event.payload, event.step) == (["send", "recv"][rank], 40, 3)
        assert (event.sent, event.received) == [(40, 0), (0, 40)][rank]
        assert event.end is not None


def test_the_copy_of_a_module_talks_in_the_same_group(ranks: Ranks) -> None:
    def run(group: Group) -> tuple[bool, int]:
        class Summed(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.group = group

        twin = copy.deepcopy(Summed())
        exchange(torch.ones(2), twin.group.next, torch.ones(2), twin.group.previous, twin.group)
        return twin.group.ledger is group.ledger, group.ledger.sent()

    assert ranks(run, 2) == [(True, 8)] * 2


def test_values_count_and_not_their_bits_in_messages(ranks: Ranks) -> None:
    def run(group: Group) -> tuple[Any, Any]:
        taken = torch.nn.Parameter(torch.zeros(3, 2, dtype=torch.complex64).t())
        given = torch.full((2, 3), 1 + 1j).conj()
        exchange(given, group.next, taken, group.previous, group)
        into = torch.zeros(2, 3, dtype=torch.complex64).conj()
        exchange(given, group.next, into, group.previous, group)
        return taken.tolist(), into.tolist()

    assert ranks(run, 2) == [([[1 - 1j] * 3] * 2,) * 2] * 2
