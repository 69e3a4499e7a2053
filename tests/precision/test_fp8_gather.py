"""The all-gather in 8 bits: one scale for all ranks, a quarter of float32's bytes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from course_lib.precision.formats import E4M3FN
from course_lib.precision.fp8_gather import fp8_all_gather
from course_lib.precision.scaling import quantize_now
from course_lib.trace import wire_bytes


def weight(rows: int, columns: int) -> torch.Tensor:
    """Rows of very different size, so that ranks would choose different scales."""
    values = torch.randn(rows, columns, generator=torch.Generator().manual_seed(0))
    return values * torch.logspace(-3, 1, rows)[:, None]


@pytest.mark.parametrize("world", [1, 2, 3, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_whole_as_one_process_would_quantize_it(
    ranks: Any, world: int, dtype: torch.dtype
) -> None:
    full = weight(12, 10).to(dtype)

    def run(group: Any) -> Any:
        shard = full.chunk(group.size)[group.index]
        gathered = fp8_all_gather(shard, group)
        again = quantize_now(gathered.dequantize(), E4M3FN)
        events = [(e.op, e.payload, e.sent, e.dtype) for e in group.ledger.events]
        return gathered.data.float(), gathered.scale, again.data.float(), events

    expected = quantize_now(full, E4M3FN)
    for index, (data, scale, again, events) in enumerate(ranks(run, world)):
        assert torch.equal(data, expected.data.float()) and torch.equal(scale, expected.scale)
        assert torch.equal(data, again)
        assert events == [
            ("all_reduce", 4, wire_bytes("all_reduce", 4, world, index, 4)[0], "float32"),
            ("all_gather", 120, 120 * (world - 1) / world, "float8_e4m3fn"),
        ]


def test_zeros_overflow_and_nothing(ranks: Any) -> None:
    def run(group: Any) -> Any:
        def gathered(shard: torch.Tensor) -> torch.Tensor:
            return fp8_all_gather(shard, group).dequantize()

        bad = torch.ones(2, 3)
        if group.rank == 1:
            bad[1, 2] = torch.inf
        return gathered(torch.zeros(2, 3)), gathered(torch.ones(0, 3)), gathered(bad)

    for zeros, nothing, bad in ranks(run, 2):
        assert torch.equal(zeros, torch.zeros(4, 3)) and nothing.shape == (0, 3)
        assert bad[3, 2].isnan()


def test_a_flat_shard_is_one_row(ranks: Any) -> None:
    def run(group: Any) -> torch.Tensor:
        return fp8_all_gather(torch.ones(6)[None], group).dequantize().flatten()

    assert all(torch.equal(flat, torch.ones(12)) for flat in ranks(run, 2))
