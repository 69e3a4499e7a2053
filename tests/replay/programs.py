"""A small training on four ranks that makes every sort of call, and the faults that it can have."""

from __future__ import annotations

import time

import torch

from course_lib import comm
from course_lib.comm import Group
from course_lib.replay.record import Recorder

STEPS, SIZE = 4, 8
CALLS = {0: 13, 1: 13, 2: 13, 3: 13}  # of each rank in a step


def garbage(*shape: int) -> torch.Tensor:
    """What an uninitialised buffer may hold: something else in each run."""
    return torch.full(shape, float(time.monotonic_ns()), dtype=torch.float64)


def train(
    recorder: Recorder, group: Group, fault: str = "", step_of: int = -1, rank_of: int = -1
) -> None:
    """Four steps. In step `step_of`, rank `rank_of` (or all, for -1) has the fault."""
    torch.manual_seed(5)
    pair = group.split([[0, 1], [2, 3]], "pair")
    weights = torch.randn(SIZE, dtype=torch.float64)
    for step in range(STEPS):
        now = fault if step == step_of and rank_of in (-1, group.rank) else ""
        seed = 10 * step + group.rank + (500 if now == "batch" else 0)
        made = torch.Generator().manual_seed(seed)
        batch = torch.randn(4, SIZE, generator=made, dtype=torch.float64)
        recorder.step(step, {"rows": batch})
        if now == "weights":
            weights.view(torch.int64)[3] ^= 1 << 51
        gradient = (batch * torch.rand(SIZE, dtype=torch.float64)).sum(0) + weights
        if now == "random":
            torch.rand(1)
        if now == "call":
            comm.barrier(group)
        weights = weights - 0.1 * mixed(gradient, group, pair, now)
        recorder.loss(weights.sum() + (1 if now == "loss" else 0))


def mixed(gradient: torch.Tensor, group: Group, pair: Group, now: str) -> torch.Tensor:
    """The gradient after every sort of call, all of which count in the result."""
    work = comm.all_reduce(gradient, group, "avg", async_op=True)  # call 0
    whole = garbage(2 * SIZE)
    comm.all_gather(whole, torch.ones(SIZE, dtype=torch.float64), pair)
    work.wait()
    part = garbage(SIZE // 2)
    comm.reduce_scatter(part, gradient, pair)  # call 2
    if now == "part":
        part[0] += 1e-3
    both = garbage(SIZE)
    comm.all_gather(both, part, pair)
    comm.barrier(group)
    told = both if group.rank == 1 else garbage(SIZE)
    comm.broadcast(told, 1, group)  # call 5
    sums = told.clone()
    comm.reduce(sums, 2, group)
    came = garbage(SIZE)
    message = told * (group.rank + 1) + (sums if group.rank == 2 else 0)
    if now == "message":
        message = message * 2
    comm.exchange(message, group.next, came, group.previous, group)  # calls 7 and 8
    swapped = garbage(SIZE)
    comm.all_to_all(swapped, came, group)
    comm.ring_all_reduce(swapped, group)  # call 10
    mine = comm.ring_reduce_scatter(swapped.clone(), group)
    ring = garbage(SIZE)
    ring.tensor_split(group.size)[group.index].copy_(mine)
    comm.ring_all_gather(ring, group)
    return ring / 100 + gradient
