"""Ring collectives against one process in float64, to the byte and to the step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from course_lib.comm import (
    CommError,
    Group,
    ring_all_gather,
    ring_all_reduce,
    ring_reduce_scatter,
)
from course_lib.comm.algorithms.ring import all_gather_steps, reduce_scatter_steps
from course_lib.trace import Ledger, wire_bytes

Ranks = Callable[..., list[Any]]
COUNTS = (0, 1, 3, 7, 4097)
OPS = ("sum", "avg", "max")


def sample(rank: int, count: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """Numbers that differ from rank to rank and are the same in every process."""
    made = torch.Generator().manual_seed(1000 * count + rank)
    return (torch.randn(count, generator=made, dtype=torch.float64) * 8).to(dtype)


def expected(size: int, count: int, op: str, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    stack = torch.stack([sample(rank, count, dtype).double() for rank in range(size)])
    return {"sum": stack.sum(0), "avg": stack.mean(0), "max": stack.amax(0)}[op]


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_equal_to_one_process_and_to_the_formula(ranks: Ranks, size: int) -> None:
    def run(group: Group) -> tuple[dict[Any, Any], Ledger]:
        out = {}
        for count in COUNTS:
            for op in OPS:
                whole, part = sample(group.rank, count), sample(group.rank, count)
                ring_all_reduce(whole, group, op)
                mine = ring_reduce_scatter(part, group, op)
                out[count, op] = whole, mine.clone()
                part.tensor_split(size)[group.index].copy_(mine)
                ring_all_gather(part, group)
                out[count, op, "both"] = part
        return out, group.ledger

    results = ranks(run, size)
    for count in COUNTS:
        for op in OPS:
            want = expected(size, count, op)
            for rank, (out, _) in enumerate(results):
                whole, mine = out[count, op]
                torch.testing.assert_close(whole, want, rtol=1e-13, atol=1e-12)
                torch.testing.assert_close(
                    mine, want.tensor_split(size)[rank], rtol=1e-13, atol=1e-12
                )
                assert whole.equal(results[0][0][count, op][0]), "ranks differ in the last bits"
                assert out[count, op, "both"].equal(whole)
    for rank, (_, ledger) in enumerate(results):
        for call in ledger.calls():
            wanted = wire_bytes(call.op, call.payload, size, rank, call.item)
            assert (call.sent, call.received) == wanted, call
            assert call.algorithm == "ring"
            assert call.end is not None


def test_messages_are_the_steps_of_the_textbook(ranks: Ranks) -> None:
    """One send and one receive a step, also where a chunk travels in several pieces."""

    def run(group: Group) -> Ledger:
        ring_all_reduce(torch.ones((3 << 20) + 1, dtype=torch.float32), group)  # chunks of 4 MiB
        return group.ledger

    for rank, ledger in enumerate(ranks(run, 3)):
        steps = reduce_scatter_steps(rank, 3) + all_gather_steps(rank, 3)
        sends = [event for event in ledger.events if event.op == "send"]
        receives = [event for event in ledger.events if event.op == "recv"]
        assert [(e.step, e.chunk, e.peer) for e in sends] == [
            (number, step.outgoing, (rank + 1) % 3) for number, step in enumerate(steps)
        ]
        assert [(e.step, e.chunk, e.peer) for e in receives] == [
            (number, step.incoming, (rank - 1) % 3) for number, step in enumerate(steps)
        ]
        assert all(event.parent == ledger.events[0].number for event in sends + receives)
        assert len(ledger.calls()) == 1
        assert not ledger.open_events()
        assert ledger.peak["communication buffers"] <= 2 << 20
        assert ledger.held["communication buffers"] == 0


@pytest.mark.parametrize("size", [2, 3, 5])
def test_every_chunk_passes_every_member(size: int) -> None:
    for index in range(size):
        steps = reduce_scatter_steps(index, size) + all_gather_steps(index, size)
        assert len(steps) == 2 * (size - 1)
        assert steps[size - 2].incoming == index, "the reduce-scatter ends at the owner"
        for before, after in zip(steps, steps[1:], strict=False):
            assert after.outgoing == before.incoming, "what comes in goes on"
        theirs = reduce_scatter_steps((index + 1) % size, size)
        assert [s.outgoing for s in reduce_scatter_steps(index, size)] == [
            s.incoming for s in theirs
        ]


def test_keeps_dtypes_and_layouts(ranks: Ranks) -> None:
    dtypes = [torch.bfloat16, torch.float16, torch.float32, torch.int64, torch.int32]

    def run(group: Group) -> dict[str, torch.Tensor]:
        out = {}
        for dtype in dtypes:
            out[str(dtype)] = sample(group.rank, 7, dtype)
            ring_all_reduce(out[str(dtype)], group)
        out["transposed"] = sample(group.rank, 35).view(5, 7).t()
        ring_all_reduce(out["transposed"], group, "avg")
        out["every second"] = torch.zeros(14, dtype=torch.float64)
        out["every second"][::2] = sample(group.rank, 7)
        ring_all_reduce(out["every second"][::2], group)
        out["parameter"] = torch.nn.Parameter(sample(group.rank, 7))
        ring_all_reduce(out["parameter"], group)
        out["fp8"] = torch.zeros(6, dtype=torch.float8_e4m3fn)
        out["fp8"].view(torch.uint8).tensor_split(3)[group.index].fill_(group.index + 1)
        ring_all_gather(out["fp8"], group)
        return {name: value.detach().double() for name, value in out.items()}

    want = expected(3, 7, "sum")
    for out in ranks(run, 3):
        for dtype in dtypes:
            exact = expected(3, 7, "sum", dtype)
            eps = 3 * torch.finfo(dtype).eps if dtype.is_floating_point else 0.0
            torch.testing.assert_close(out[str(dtype)], exact, rtol=eps, atol=eps * 40)
        torch.testing.assert_close(out["transposed"], expected(3, 35, "avg").view(5, 7).t())
        torch.testing.assert_close(out["every second"][::2], want)
        assert not out["every second"][1::2].any(), "wrote between the elements"
        torch.testing.assert_close(out["parameter"], want)
        bits = torch.tensor([1, 1, 2, 2, 3, 3], dtype=torch.uint8)
        assert out["fp8"].equal(bits.view(torch.float8_e4m3fn).double())


def test_an_average_is_divided_once(ranks: Ranks) -> None:
    """1 + 1 + 1 over 3 is 1 in any precision; a division at every hop is not."""

    def run(group: Group) -> torch.Tensor:
        tensor = torch.full((9,), 255.0, dtype=torch.bfloat16)
        ring_all_reduce(tensor, group, "avg")
        return tensor

    for tensor in ranks(run, 3):
        assert tensor.dtype == torch.bfloat16
        assert (tensor - 255).abs().max() <= 1


def test_refuses(ranks: Ranks) -> None:
    def run(group: Group) -> list[str]:
        said = []
        for tensor, op in (
            (torch.ones(4), "mean"),
            (torch.ones(4, dtype=torch.int64), "avg"),
            (torch.ones(4).to(torch.float8_e5m2), "sum"),
            (torch.ones(4, dtype=torch.uint16), "sum"),
        ):
            for collective in (ring_all_reduce, ring_reduce_scatter):
                try:
                    collective(tensor, group, op)
                except CommError as error:
                    said.append(str(error))
        assert not group.ledger.events, "booked what it refused"
        return said

    said = ranks(run, 1)[0]
    assert len(said) == 8
    for text in said:
        assert [line.split(":")[0] for line in text.splitlines()] == ["asked", "found", "why"]
    assert "'mean'" in said[0]
    assert "torch.int64" in said[2]
    assert "wider dtype" in said[4]
