"""The backend's collectives: results of one process, bytes of the formula, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from course_lib.comm import (
    CommError,
    Group,
    Work,
    all_gather,
    all_reduce,
    all_to_all,
    barrier,
    broadcast,
    reduce,
    reduce_scatter,
)
from course_lib.trace import Ledger, Timeline, wire_bytes

Ranks = Callable[..., list[Any]]
SIZES = pytest.mark.parametrize("size", [1, 2, 3, 4])


def sample(rank: int, *shape: int) -> torch.Tensor:
    made = torch.Generator().manual_seed(rank)
    return torch.randn(*shape, generator=made, dtype=torch.float64)


def stacked(size: int, *shape: int) -> torch.Tensor:
    return torch.stack([sample(rank, *shape) for rank in range(size)])


def close(found: torch.Tensor, wanted: torch.Tensor) -> None:
    torch.testing.assert_close(found, wanted, rtol=1e-13, atol=1e-13)


@SIZES
def test_reductions(ranks: Ranks, size: int) -> None:
    reference: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "sum": lambda t: t.sum(0),
        "avg": lambda t: t.mean(0),
        "max": lambda t: t.amax(0),
        "min": lambda t: t.amin(0),
        "product": lambda t: t.prod(0),
    }
    ops, last = list(reference), size - 1

    def run(group: Group) -> tuple[dict[Any, torch.Tensor], Ledger]:
        out = {}
        for op in ops:
            out["all", op] = sample(group.rank, 4 * size, 3)
            all_reduce(out["all", op], group, op)
            out["turned", op] = sample(group.rank, 3, 5).t()
            all_reduce(out["turned", op], group, op)
            out["scatter", op] = torch.empty(4, 3, dtype=torch.float64)
            reduce_scatter(out["scatter", op], sample(group.rank, 4 * size, 3), group, op)
            out["one", op] = sample(group.rank, 7)
            reduce(out["one", op], last, group, op)
        return out, group.ledger

    results = ranks(run, size)
    for rank, (out, ledger) in enumerate(results):
        for op, of in reference.items():
            close(out["all", op], of(stacked(size, 4 * size, 3)))
            close(out["turned", op], of(stacked(size, 3, 5)).t())
            close(out["scatter", op], of(stacked(size, 4 * size, 3)).chunk(size)[rank])
            if rank == last:
                close(out["one", op], of(stacked(size, 7)))
        for call in ledger.calls():
            index = rank if call.op != "reduce" else (rank - last) % size
            wanted = wire_bytes(call.op, call.payload, size, index, 8)
            assert (call.sent, call.received) == wanted
    for row in Timeline(ledger for _, ledger in results).rows():
        assert row["sent"] == row["formula_sent"]
        assert sum(row["sent"]) == sum(row["received"]), "every byte sent arrives once"


@SIZES
def test_gather_and_broadcast(ranks: Ranks, size: int) -> None:
    def run(group: Group) -> tuple[dict[str, torch.Tensor], Ledger]:
        out = {"all": torch.empty(2 * size, 3, dtype=torch.float64)}
        all_gather(out["all"], sample(group.rank, 2, 3), group)
        out["turned"] = torch.empty(3, 2 * size, dtype=torch.float64).t()
        all_gather(out["turned"], sample(group.rank, 3, 2).t(), group)
        out["from last"] = sample(group.rank, 3, 2).t()
        broadcast(out["from last"], size - 1, group)
        out["fp8"] = torch.empty(2 * size).to(torch.float8_e4m3fn)
        all_gather(out["fp8"], torch.full((2,), group.rank + 0.5).to(torch.float8_e4m3fn), group)
        barrier(group)
        return {name: tensor.double() for name, tensor in out.items()}, group.ledger

    results = ranks(run, size)
    for out, ledger in results:
        close(out["all"], stacked(size, 2, 3).view(-1, 3))
        close(out["turned"], torch.cat([sample(rank, 3, 2).t() for rank in range(size)]))
        close(out["from last"], sample(size - 1, 3, 2).t())
        close(out["fp8"], torch.arange(size).repeat_interleave(2).double() + 0.5)
        assert [call.op for call in ledger.calls()][-1] == "barrier"
        assert ledger.sent("barrier") == 0
        assert ledger.calls("all_gather")[0].payload == 2 * size * 3 * 8
    for row in Timeline(ledger for _, ledger in results).rows():
        assert row["sent"] == row["formula_sent"]
        assert sum(row["sent"]) == sum(row["received"])


@SIZES
def test_uneven_all_to_all(ranks: Ranks, size: int) -> None:
    counts = [[(i + 2 * j) % 3 for j in range(size)] for i in range(size)]

    def run(group: Group) -> tuple[dict[str, torch.Tensor], Ledger]:
        going, coming = counts[group.rank], [counts[i][group.rank] for i in range(size)]
        output = torch.empty(sum(coming), 3, dtype=torch.float64)
        all_to_all(output, sample(group.rank, sum(going), 3), group, coming, going)
        equal = torch.empty(2 * size, dtype=torch.float64)
        all_to_all(equal, sample(group.rank, 2 * size), group)
        eight = torch.empty(size).to(torch.float8_e5m2)
        all_to_all(eight, torch.full((size,), float(group.rank)).to(torch.float8_e5m2), group)
        return {"uneven": output, "equal": equal, "fp8": eight.double()}, group.ledger

    results = ranks(run, size)
    for rank, (out, ledger) in enumerate(results):
        parts = [sample(i, sum(counts[i]), 3).split(counts[i])[rank] for i in range(size)]
        assert out["uneven"].equal(torch.cat(parts))
        assert out["equal"].equal(
            torch.cat([sample(i, 2 * size).split(2)[rank] for i in range(size)])
        )
        assert out["fp8"].equal(torch.arange(float(size)).double())
        uneven = ledger.calls("all_to_all")[0]
        assert uneven.sent == sum(counts[rank][j] for j in range(size) if j != rank) * 24
        assert uneven.received == sum(counts[i][rank] for i in range(size) if i != rank) * 24


def test_async_results_are_there_after_wait(ranks: Ranks) -> None:
    def run(group: Group) -> dict[str, torch.Tensor]:
        full, turned = sample(group.rank, 6), sample(group.rank, 2, 3).t()
        part, all_of_it = torch.empty(2), torch.empty(9)
        works: list[Work] = [
            all_reduce(full, group, "avg", async_op=True),
            all_reduce(turned, group, async_op=True),
            reduce_scatter(part, torch.arange(6.0), group, "avg", async_op=True),
            all_gather(all_of_it, torch.full((3,), float(group.rank)), group, async_op=True),
        ]
        opened = group.ledger.open_events()
        assert [event.seq for event in opened] == [0, 1, 2, 3]
        for work in reversed(works):
            work.wait()
        work.wait()
        assert not group.ledger.open_events()
        return {"full": full, "turned": turned, "part": part, "all": all_of_it}

    for rank, out in enumerate(ranks(run, 3)):
        close(out["full"], stacked(3, 6).mean(0))
        close(out["turned"], stacked(3, 2, 3).sum(0).t())
        assert out["part"].equal(torch.arange(6.0).chunk(3)[rank])
        assert out["all"].equal(torch.arange(3.0).repeat_interleave(3))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.int64])
def test_dtypes_are_kept(ranks: Ranks, dtype: torch.dtype) -> None:
    def run(group: Group) -> torch.Tensor:
        tensor = torch.arange(4, dtype=dtype) + group.rank
        all_reduce(tensor, group)
        return tensor

    for found in ranks(run, 2):
        assert found.dtype == dtype
        assert found.tolist() == [1, 3, 5, 7]


def test_each_refusal_says_what_was_asked_found_and_why(ranks: Ranks) -> None:
    def run(group: Group) -> list[str]:
        ones, eight = torch.ones(4), torch.ones(4).to(torch.float8_e4m3fn)
        calls: list[Callable[[], Any]] = [
            lambda: all_reduce(ones, group, "mean"),
            lambda: all_reduce(ones.long(), group, "avg"),
            lambda: all_reduce(eight, group),
            lambda: reduce(ones, 2, group),
            lambda: broadcast(ones, -1, group),
            lambda: reduce_scatter(torch.ones(3), ones, group),
            lambda: all_gather(torch.ones(8), ones.double(), group),
            lambda: all_gather(torch.ones(7), ones, group),
            lambda: all_to_all(ones, torch.ones(3), group),
            lambda: all_to_all(ones, ones, group, [1, 2], [2, 2]),
            lambda: all_to_all(ones, ones, group, [4], [2, 2]),
        ]
        said = []
        for call in calls:
            with pytest.raises(CommError) as caught:
                call()
            said.append(str(caught.value))
        assert not group.ledger.events, "booked what it refused"
        return said

    said = ranks(run, 2)[0]
    for text in said:
        assert [line.split(":")[0] for line in text.splitlines()] == ["asked", "found", "why"]
    wanted = ["'mean'", "int64", "8-bit", "index 2", "index -1", "3 torch.float32", "float64",
              "7 torch.float32", "3 rows", "[1, 2]", "[4]"]  # fmt: skip
    for text, word in zip(said, wanted, strict=True):
        assert word in text


def test_parameters_are_written_past_autograd(ranks: Ranks) -> None:
    """A mean or a copy back is no step of the graph, as a sum by the backend is none."""

    def run(group: Group) -> list[Any]:
        mean = torch.nn.Parameter(torch.full((3,), float(group.index)))
        all_reduce(mean, group, "avg")
        turned = torch.nn.Parameter(sample(group.index, 3, 2).t())
        broadcast(turned, 0, group)
        leaf = torch.ones(3, requires_grad=True)
        made = leaf * 2
        all_reduce(made, group, "avg")
        made.sum().backward()
        return [mean.tolist(), turned.detach(), leaf.grad.tolist()]

    for mean, turned, grad in ranks(run, 3):
        assert mean == [1.0] * 3
        assert turned.equal(sample(0, 3, 2).t())
        assert grad == [2.0] * 3


def test_values_count_and_not_their_bits(ranks: Ranks) -> None:
    """A conjugate and a negative view are flags on the bits of another tensor."""

    def run(group: Group) -> list[Any]:
        given = torch.full((group.size,), 1 + 1j * (group.index + 1)).conj()
        whole, mine = torch.empty(2 * group.size, 1), torch.full((2, 1), 1 + 1j).conj().imag
        all_gather(whole, mine, group)
        swapped, last = torch.empty_like(given), given.clone().conj().conj()
        all_to_all(swapped, given, group)
        broadcast(last := last.conj(), group.size - 1, group)
        summed, part = given.clone(), torch.empty(1, dtype=given.dtype).conj()
        all_reduce(summed, group)
        reduce_scatter(part, given, group)
        negative = torch.zeros(group.size, dtype=torch.complex64).conj().imag
        all_gather(negative, torch.ones(1), group)
        return [whole.tolist(), swapped.tolist(), last.tolist(), summed.tolist(), part.tolist(),
                negative.tolist()]  # fmt: skip

    for whole, swapped, last, summed, part, negative in ranks(run, 2):
        assert whole == [[-1.0]] * 4
        assert swapped == [1 - 1j, 1 - 2j]
        assert last == [1 + 2j] * 2
        assert summed == [2 - 3j] * 2
        assert part == [2 - 3j]
        assert negative == [1.0, 1.0]


def test_an_all_to_all_takes_counts_of_any_kind_and_refuses_what_does_not_fit(
    ranks: Ranks,
) -> None:
    def run(group: Group) -> tuple[list[float], Any, list[str]]:
        counts = torch.tensor([1, 1])
        swapped = torch.empty(2)
        all_to_all(swapped, torch.arange(2.0) + group.index, group, counts, counts)
        sent = group.ledger.calls("all_to_all")[-1].sent
        said = []
        for output, given, sizes in (
            (torch.empty(2), torch.ones(2), [-1, 3]),
            (torch.empty(2, dtype=torch.int32), torch.ones(2), None),
            (torch.empty(2, 2), torch.ones(2, 3), None),
            (torch.empty(()), torch.ones(()), None),
        ):
            with pytest.raises(CommError) as caught:
                all_to_all(output, given, group, sizes, sizes)
            said.append(str(caught.value))
        assert not group.ledger.open_events()
        return swapped.tolist(), sent, said

    for index, (swapped, sent, said) in enumerate(ranks(run, 2)):
        assert swapped == [index, index + 1.0]
        assert sent == 4 and type(sent) is int
        assert "none below 0" in said[0]
        assert "int32" in said[1] and "float32" in said[1]
        assert "(2, 2)" in said[2] and "(2, 3)" in said[2]
        assert "rows along dim 0" in said[3]
