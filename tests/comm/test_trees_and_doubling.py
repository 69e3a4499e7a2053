"""The logarithmic algorithms, two levels, pairwise exchange, and the choice between them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from course_lib.comm import (
    CommError,
    Group,
    Mesh,
    all_reduce_from_messages,
    doubling_all_reduce,
    halving_doubling_all_reduce,
    hierarchical_all_reduce,
    pairwise_all_to_all,
    tree_broadcast,
    tree_reduce,
)
from course_lib.comm.algorithms.choose import ALGORITHMS, choose_algorithm
from course_lib.comm.algorithms.tree import rounds
from course_lib.trace import Event, Ledger, wire_bytes

Ranks = Callable[..., list[Any]]
COUNTS = (0, 1, 7, 4097)


def sample(rank: int, count: int) -> torch.Tensor:
    made = torch.Generator().manual_seed(1000 * count + rank)
    return torch.randn(count, generator=made, dtype=torch.float64)


def expected(size: int, count: int, op: str) -> torch.Tensor:
    stack = torch.stack([sample(rank, count) for rank in range(size)])
    return {"sum": stack.sum(0), "avg": stack.mean(0), "max": stack.amax(0)}[op]


def close(found: torch.Tensor, wanted: torch.Tensor) -> None:
    torch.testing.assert_close(found, wanted, rtol=1e-13, atol=1e-13)


def parts_of(ledger: Ledger, call: Event, op: str) -> list[Event]:
    return [e for e in ledger.events if e.parent == call.number and e.op == op]


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 6])
def test_broadcast_and_reduce_along_a_tree(ranks: Ranks, size: int) -> None:
    roots = range(size)

    def run(group: Group) -> tuple[list[Any], Ledger]:
        out = []
        for root in roots:
            for count in COUNTS:
                down, up = sample(group.rank, count), sample(group.rank, count)
                tree_broadcast(down, root, group)
                op = ("sum", "avg", "max")[root % 3]
                tree_reduce(up, root, group, op)
                out.append((root, count, op, down, up))
        return out, group.ledger

    results = ranks(run, size)
    assert rounds(size) == {1: 0, 2: 1, 3: 2, 4: 2, 5: 3, 6: 3}[size]
    for rank, (out, ledger) in enumerate(results):
        for root, count, op, down, up in out:
            assert down.equal(sample(root, count))
            if rank == root:
                close(up, expected(size, count, op))
        for call in ledger.calls():
            sends, receives = parts_of(ledger, call, "send"), parts_of(ledger, call, "recv")
            assert call.algorithm == "tree"
            assert all(0 <= e.step < rounds(size) for e in sends + receives)
            assert len({e.step for e in sends + receives}) == len(sends + receives)
            has_data = call.payload > 0
            if call.op == "broadcast":
                assert len(receives) == (has_data and rank != call.peer), "receives once"
            else:
                assert len(sends) == (has_data and rank != call.peer), "hands in once"
    for calls in zip(*(ledger.calls() for _, ledger in results), strict=True):
        assert sum(call.sent for call in calls) == (size - 1) * calls[0].payload
        assert sum(call.received for call in calls) == (size - 1) * calls[0].payload


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 6])
def test_doubling_and_halving(ranks: Ranks, size: int) -> None:
    def run(group: Group) -> tuple[dict[Any, torch.Tensor], Ledger]:
        out = {}
        for count in COUNTS:
            for op in ("sum", "avg", "max"):
                for name in ("doubling", "halving-doubling"):
                    out[count, op, name] = sample(group.rank, count)
                    ALGORITHMS[name](out[count, op, name], group, op)
        return out, group.ledger

    results = ranks(run, size)
    for out, _ in results:
        for (count, op, name), found in out.items():
            close(found, expected(size, count, op))
            assert found.equal(results[0][0][count, op, name]), "ranks differ in the last bits"
    power, fold = 1 << (size.bit_length() - 1), 2 * (size & (size - 1) > 0)
    most = {"doubling": power.bit_length() - 1, "halving-doubling": 2 * (power.bit_length() - 1)}
    for _, ledger in results:
        for call in ledger.calls():
            steps = {e.step for e in ledger.events if e.parent == call.number}
            assert all(0 <= step < most[call.algorithm] + fold for step in steps)
            if call.payload > 4096 and size == power:
                assert len(steps) == most[call.algorithm]


@pytest.mark.parametrize("size", [2, 4])
def test_halving_sends_the_bytes_of_the_formula(ranks: Ranks, size: int) -> None:
    def run(group: Group) -> Ledger:
        halving_doubling_all_reduce(sample(group.rank, 4096), group)
        doubling_all_reduce(sample(group.rank, 4096), group)
        return group.ledger

    for rank, ledger in enumerate(ranks(run, size)):
        halving, doubling = ledger.calls()
        sent, received = wire_bytes("all_reduce", halving.payload, size, rank, halving.item)
        assert (halving.sent, halving.received) == (sent, received)
        assert doubling.sent == doubling.received == doubling.payload * rounds(size)


def test_large_tensors_go_in_pieces(ranks: Ranks) -> None:
    """Several pieces a message, on both kinds of exchange, with a transposed tensor."""
    count = (1 << 18) + 5  # a little over 2 MiB in float64

    def run(group: Group) -> tuple[list[torch.Tensor], Ledger]:
        out = [sample(group.rank, count), sample(group.rank, 2 * count).view(2, count).t()]
        doubling_all_reduce(out[0], group)
        halving_doubling_all_reduce(out[1], group, "avg")
        return out, group.ledger

    for out, ledger in ranks(run, 2):
        close(out[0], expected(2, count, "sum"))
        close(out[1], expected(2, 2 * count, "avg").view(2, count).t())
        assert [len(parts_of(ledger, call, "send")) for call in ledger.calls()] == [1, 2]
        assert ledger.held["communication buffers"] == 0


@pytest.mark.parametrize(("nodes", "per_node"), [(2, 2), (3, 2), (2, 3)])
def test_hierarchical(ranks: Ranks, nodes: int, per_node: int) -> None:
    size = nodes * per_node

    def run(group: Group) -> tuple[dict[Any, torch.Tensor], Ledger]:
        mesh = Mesh(group, {"between": nodes, "node": per_node})
        out = {}
        for count in (1, 7, 4104):
            for op in ("sum", "avg", "max"):
                out[count, op] = sample(group.rank, count)
                hierarchical_all_reduce(out[count, op], mesh["node"], mesh["between"], op)
        return out, group.ledger

    for out, ledger in ranks(run, size):
        for (count, op), found in out.items():
            close(found, expected(size, count, op))
        last = [call for call in ledger.calls() if call.axis == "between"][-1]
        payload = 4104 * 8
        assert last.payload == payload // per_node
        assert last.sent == 2 * (nodes - 1) * payload // nodes // per_node
        assert ledger.calls(axis="node")[-1].sent == (per_node - 1) * payload // per_node


def test_hierarchical_wants_a_row_and_a_column(ranks: Ranks) -> None:
    def run(group: Group) -> str:
        with pytest.raises(CommError) as caught:
            hierarchical_all_reduce(torch.ones(3), group, group)
        return str(caught.value)

    assert "[0, 1] are in both" in ranks(run, 2)[0]


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_pairwise_all_to_all(ranks: Ranks, size: int) -> None:
    """Member i sends (i·j) mod 4 rows to member j: some pairs exchange nothing."""

    def rows(source: int, target: int) -> torch.Tensor:
        return sample(10 * source + target, 3 * (source * target % 4)).view(-1, 3)

    def run(group: Group) -> tuple[list[torch.Tensor], Ledger]:
        inputs = [rows(group.rank, j) for j in range(size)]
        outputs = [torch.full_like(rows(i, group.rank), -1) for i in range(size)]
        pairwise_all_to_all(outputs, inputs, group)
        return outputs, group.ledger

    for rank, (outputs, ledger) in enumerate(ranks(run, size)):
        for source, found in enumerate(outputs):
            assert found.equal(rows(source, rank))
        (call,) = ledger.calls()
        others = [j for j in range(size) if j != rank]
        assert call.payload == sum(rows(rank, j).nbytes for j in range(size))
        assert call.sent == sum(rows(rank, j).nbytes for j in others)
        assert call.received == sum(rows(i, rank).nbytes for i in others)
        busy = [j for j in others if rows(rank, j).numel()]
        assert sorted(e.peer for e in parts_of(ledger, call, "send")) == busy


def test_pairwise_refuses(ranks: Ranks) -> None:
    def run(group: Group) -> list[str]:
        said = []
        ones = [torch.ones(2), torch.ones(2)]
        for outputs, inputs in ((ones[:1], ones), (ones, [torch.ones(3)] * 2)):
            with pytest.raises(CommError) as caught:
                pairwise_all_to_all(outputs, inputs, group)
            said.append(str(caught.value))
        return said

    count, shape = ranks(run, 2)[1]
    assert "2 inputs and 1 outputs" in count
    assert "rank 1 keeps its part 1" in shape


def test_the_choice_follows_size(ranks: Ranks) -> None:
    assert choose_algorithm(4 << 10, 4) == "doubling"
    assert choose_algorithm(1 << 20, 4) == "halving-doubling"
    assert choose_algorithm(1 << 20, 3) == "ring"
    assert choose_algorithm(1 << 20, 2) == "doubling"
    assert choose_algorithm(64 << 20, 4) == "ring"

    def run(group: Group) -> list[str]:
        for count in (8, 1 << 17, 1 << 20):
            tensor = sample(group.rank, count)
            all_reduce_from_messages(tensor, group, "max")
            close(tensor, expected(4, count, "max"))
        return [call.algorithm for call in group.ledger.calls()]

    for names in ranks(run, 4):
        assert names == ["doubling", "halving-doubling", "ring"]
