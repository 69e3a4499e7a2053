"""The cost model: fits what it predicts, and agrees with the formulas of the wire."""

from __future__ import annotations

import pytest

from course_lib.trace import AlphaBeta, bus_bandwidth, fit, wire_bytes

LINK = AlphaBeta(20e-6, 1 / 5e9)


def test_fit_recovers_the_line() -> None:
    sizes = [8 * 4**k for k in range(12)]
    found = fit(sizes, [LINK.seconds("send", size, 2) for size in sizes])
    assert found.alpha == pytest.approx(LINK.alpha, rel=1e-9)
    assert found.beta == pytest.approx(LINK.beta, rel=1e-9)


def test_fit_weighs_relative_errors() -> None:
    sizes = [8, 64, 512, 4096, 1 << 28]
    times = [LINK.seconds("send", size, 2) for size in sizes]
    times[-1] *= 1.05  # absolute least squares would throw α away for the sake of this point
    assert fit(sizes, times).alpha == pytest.approx(LINK.alpha, rel=0.02)


@pytest.mark.parametrize("op", ["reduce_scatter", "all_gather", "all_reduce", "all_to_all"])
@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_long_messages_cost_their_bytes(op: str, size: int) -> None:
    free_start = AlphaBeta(0.0, LINK.beta)
    sent = wire_bytes(op, 5040, size, 0)[0]
    assert free_start.seconds(op, 5040, size) == pytest.approx(sent * LINK.beta)


def test_the_ring_wins_for_long_tensors_and_doubling_for_short_ones() -> None:
    ring, doubling = "ring all_reduce", "doubling all_reduce"
    assert LINK.seconds(doubling, 1 << 10, 64) < LINK.seconds(ring, 1 << 10, 64)
    assert LINK.seconds(doubling, 1 << 28, 64) > LINK.seconds(ring, 1 << 28, 64)


def test_bus_bandwidth_is_the_links_whatever_the_ranks() -> None:
    free_start = AlphaBeta(0.0, LINK.beta)
    for op in ("send", "reduce_scatter", "all_gather", "all_to_all", "all_reduce"):
        for size in (2, 8, 64):
            seconds = free_start.seconds(op, 1 << 20, size)
            assert bus_bandwidth(op, 1 << 20, size, seconds) == pytest.approx(LINK.bandwidth)


def test_a_pipelined_broadcast_moves_each_byte_once_over_a_link() -> None:
    for op in ("broadcast", "tree broadcast", "reduce", "tree reduce", "send", "recv"):
        assert bus_bandwidth(op, 1 << 20, 8, 0.5) == 2 * (1 << 20), op
    assert bus_bandwidth("reduce_scatter", 1 << 20, 8, 0.5) == 2 * (1 << 20) * 7 / 8


@pytest.mark.parametrize(("sizes", "times"), [
    ([8], [1.0]), ([8, 8], [1.0, 1.0]), ([8, 9], [0, 1]),
    ([8, 9], [float("nan"), 1]), ([8, 9], [1, float("inf")]),
])  # fmt: skip
def test_what_determines_no_line_is_refused(sizes: list[int], times: list[float]) -> None:
    with pytest.raises(ValueError, match="two different sizes"):
        fit(sizes, times)
