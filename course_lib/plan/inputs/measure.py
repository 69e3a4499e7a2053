"""This machine as a cluster: what its products, its memory and its messages reach.

Notebook: 15 Choosing a strategy (step_time; plan against the reader's own run).
Source: the measurements of this file; McCalpin, "STREAM" (1995), for the copy.
Costs under a second of one rank's time.
The production version runs many shapes, after a warm-up, and takes the medians.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from course_lib.plan.inputs.calibration import STREAMING
from course_lib.plan.inputs.hardware import Cluster, Gpu, Link
from course_lib.trace.alpha_beta import AlphaBeta

PRODUCT = 768  # rows, inner and columns of the product
COPIED = 1 << 26  # bytes of the copy, more than caches hold
ROUNDS = 5


def _best(function: Callable[[], object], rounds: int) -> float:
    """Seconds of the fastest of several calls: others on the machine only make it slower."""
    times = []
    for _ in range(rounds + 1):
        begin = time.perf_counter()
        function()
        times.append(time.perf_counter() - begin)
    return min(times[1:])


def product_rate(dtype: torch.dtype = torch.float32, size: int = PRODUCT) -> float:
    """FLOP/s of a square product with as many threads as torch uses now."""
    a, b = torch.randn(size, size).to(dtype), torch.randn(size, size).to(dtype)
    return 2 * size**3 / _best(lambda: a @ b, ROUNDS)


def memory_rate(size: int = COPIED) -> float:
    """Bytes/s of a copy, reading and writing."""
    source = torch.zeros(size // 4)
    target = torch.empty_like(source)
    return 2 * size / _best(lambda: target.copy_(source), ROUNDS)


def measure_here(ranks: int, messages: AlphaBeta, memory: float = 0.0) -> Cluster:
    """This machine as one node.

    Args:
        ranks: processes that share it; each gets its part of what is measured alone.
        messages: fit of messages between two ranks, from `trace.alpha_beta.fit`.
        memory: bytes of each rank, 0 if not asked.

    Returns:
        A cluster for `simulate` with layouts of precision `fp32`; it has no other nodes, and
        `STREAMING` is taken out of the bandwidth, since the copy has reached it already.
    """
    rates = {"fp32": product_rate() / ranks, "bf16": product_rate(torch.bfloat16) / ranks}
    rates |= {"fp16": rates["bf16"], "fp8": rates["bf16"]}
    gpu = Gpu(
        "here", rates, rates, memory, memory_rate() / ranks / STREAMING, (0.5, 0.5), 1, (1, 1)
    )
    link = Link(messages.alpha, messages.bandwidth)
    return Cluster(gpu, ranks, ranks, link, link)
