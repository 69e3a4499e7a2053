"""Collectives built from messages against gloo's own, float32, times of one call.

Both run in the same processes by turns (A B B A ...), with a barrier before each turn of several
calls; a turn takes as long as its slowest rank, and the medians over all turns are compared.
`all_reduce` is `comm.all_reduce_from_messages` against `dist.all_reduce`; `reduce_scatter` is the
ring's reduce-scatter and all-gather, in place, against gloo's own pair. The note is the bus
bandwidth of both: 2(N-1)/N·S/t.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist

from benchmarks.row import Row
from benchmarks.training.turns import time_calls
from course_lib.comm import (
    Group,
    all_reduce_from_messages,
    ring_all_gather,
    ring_reduce_scatter,
)
from course_lib.ranks import ForkServer, run_on_ranks
from course_lib.trace import bus_bandwidth

SIZES = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20]
WORLDS = (2, 4)
TURN_BYTES = 32 << 20  # a turn repeats small calls until it has moved about so much
MOST_CALLS = 20


def candidates(payload: int, group: Group) -> dict[str, Callable[[], object]]:
    """What takes turns, on buffers of `payload` bytes. Zeros, so that sums do not grow."""
    tensor = torch.zeros(payload // 4)
    part = torch.zeros(tensor.numel() // group.size)

    def ours_pair() -> None:
        ring_reduce_scatter(tensor, group)
        ring_all_gather(tensor, group)

    def gloo_pair() -> None:
        dist.reduce_scatter_single(part, tensor)
        dist.all_gather_single(tensor, part)

    return {
        "ours all_reduce": lambda: all_reduce_from_messages(tensor, group),
        "gloo all_reduce": lambda: dist.all_reduce(tensor),
        "ours reduce_scatter": ours_pair,
        "gloo reduce_scatter": gloo_pair,
    }


def turns(group: Group, payload: int, rounds: int) -> dict[str, list[float]]:
    """Seconds a call, turn by turn, on this rank. The first round warms up and does not count."""
    calls = max(1, min(MOST_CALLS, TURN_BYTES // payload))
    return time_calls(candidates(payload, group), group, rounds, calls)


def medians(per_rank: list[dict[str, list[float]]]) -> dict[str, float]:
    """The median over the turns, each as long as its slowest rank, in seconds."""
    return {
        name: statistics.median(map(max, *(times[name] for times in per_rank)))
        for name in per_rank[0]
    }


def rows() -> Iterator[Row]:
    """Sizes from 4 KiB to 64 MiB on 2 and 4 ranks; about a minute on two cores."""
    with ForkServer() as server:
        for world in WORLDS:
            for payload in SIZES:
                rounds = 24 if payload <= 4 << 20 else 12
                found = medians(run_on_ranks(turns, world, payload, rounds, server=server))
                for what in ("all_reduce", "reduce_scatter"):
                    ours, gloo = found[f"ours {what}"], found[f"gloo {what}"]
                    speeds = [
                        bus_bandwidth("all_reduce", payload, world, t) / 1e9 for t in (ours, gloo)
                    ]
                    yield Row(
                        "collectives", what, world, payload, round(ours * 1e3, 4),
                        round(gloo * 1e3, 4), "gloo", "ms",
                        f"{speeds[0]:.2f} against {speeds[1]:.2f} GB/s",
                    )  # fmt: skip
