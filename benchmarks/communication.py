"""Bytes and time to a loss on 2 ranks whose hosts are joined at 20 Mbit/s, five seeds each.

The transformer of the lessons (0.5 MB of float32 gradients, AdamW, batch 8 of 64 tokens) is trained
for 60 steps on the course's text; every way sees the same batches. A way is at the loss with the
first step by which the mean of five losses, over both ranks, is not above 3.3. Compared are the
means over the seeds of the bytes that a rank has sent by then, and of the time as the slower rank
sees it. The peer is torch's DDP; for PowerSGD it is torch's DDP with its `powerSGD_hook` of the
same rank, which begins with two plain steps. The note has the range over the seeds of the steps,
and of the loss over the last ten. Needs root on Linux: hosts are emulated.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as torchs
from torch.nn.parallel import DistributedDataParallel

from benchmarks.row import Row
from benchmarks.training.turns import WireBytes
from course_lib.comm import Group, all_reduce, barrier
from course_lib.data import WindowSampler, load_corpus
from course_lib.lesson import train_step
from course_lib.lesson.learn import CONFIG
from course_lib.model import Transformer
from course_lib.parallel import (
    BucketedDDP,
    CompressedDDP,
    DiLoCo,
    ErrorFeedback,
    Int8,
    LocalSGD,
    OneBitAdam,
    PowerSGD,
    Sign,
    StreamingDiLoCo,
)
from course_lib.ranks import ForkServer, run_on_ranks

WORLD, MBIT = 2, 20
STEPS, SEEDS, BATCH, RATE, GOAL, TEXT = 60, 5, 8, 2e-3, 3.3, 2 << 20
EVERY, RANK = 10, 2
Made = tuple[nn.Module, Any]
make = partial(torch.optim.AdamW, lr=RATE)


def torch_ddp(model: nn.Module, group: Group, hook: bool = False) -> Made:
    """DDP of torch, with its PowerSGD or without."""
    wrapped = DistributedDataParallel(model, process_group=group.handle)
    if hook:
        state = torchs.PowerSGDState(
            dist.group.WORLD, matrix_approximation_rank=RANK, start_powerSGD_iter=2
        )
        wrapped.register_comm_hook(state, torchs.powerSGD_hook)
    return wrapped, make(model.parameters())


def compressed(model: nn.Module, group: Group, reducer: Callable[[], Any]) -> Made:
    """Data parallelism with a reducer of its own."""
    return CompressedDDP(model, group, reducer()), make(model.parameters())


def streaming(model: nn.Module, group: Group) -> Made:
    """Two fragments, three steps late, a byte for each weight."""
    listed = list(model.parameters())
    halves = [listed[: len(listed) // 2], listed[len(listed) // 2 :]]
    inner = make(listed)
    outer = StreamingDiLoCo(inner, group, EVERY, halves, delay=3, keep=0.5, compressor=Int8())
    return model, outer


WAYS: dict[str, tuple[Callable[[nn.Module, Group], Made], str]] = {
    "ddp": (lambda m, g: (BucketedDDP(m, g), make(m.parameters())), "torch DDP"),
    "local sgd": (lambda m, g: (m, LocalSGD(make(m.parameters()), g, EVERY)), "torch DDP"),
    "diloco": (lambda m, g: (m, DiLoCo(make(m.parameters()), g, EVERY)), "torch DDP"),
    "streaming int8": (streaming, "torch DDP"),
    "powersgd": (partial(compressed, reducer=lambda: PowerSGD(RANK)), "torch powerSGD_hook"),
    "int8 fed back": (partial(compressed, reducer=lambda: ErrorFeedback(Int8())), "torch DDP"),
    "signs fed back": (partial(compressed, reducer=lambda: ErrorFeedback(Sign())), "torch DDP"),
    "1-bit adam": (lambda m, g: (m, OneBitAdam(m.parameters(), g, 15, lr=RATE)), "torch DDP"),
}
PEERS: dict[str, Callable[[nn.Module, Group], Made]] = {
    "torch DDP": torch_ddp,
    "torch powerSGD_hook": partial(torch_ddp, hook=True),
}


def trained(group: Group, wrap: Callable[[nn.Module, Group], Made], seed: int) -> dict[str, Any]:
    """One training: after each step the seconds and bytes so far; losses over both ranks."""
    text = load_corpus(limit=TEXT).train
    windows = WindowSampler(text, CONFIG.sequence, BATCH, group.index, group.size, seed)
    model, optimizer = wrap(Transformer(CONFIG, seed), group)
    losses, seconds, sent = [], [], []
    barrier(group)
    begin, before, torchs_own = time.monotonic(), group.ledger.sent(), WireBytes()
    for _ in range(STEPS):
        if isinstance(model, DistributedDataParallel):
            with torchs_own:
                losses.append(train_step(model, optimizer, *next(windows)))
        else:
            losses.append(train_step(model, optimizer, *next(windows)))
        seconds.append(time.monotonic() - begin)
        sent.append(group.ledger.sent() - before + torchs_own.sent)
    mean, slowest = torch.tensor(losses), torch.tensor(seconds)
    all_reduce(mean, group, "avg")
    all_reduce(slowest, group, "max")
    return {"losses": mean.tolist(), "seconds": slowest.tolist(), "sent": sent}


def on_rank(group: Group) -> dict[str, list[dict[str, Any]]]:
    """All ways, peers included, seed by seed."""
    everyone = PEERS | {name: wrap for name, (wrap, _) in WAYS.items()}
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in everyone}
    for seed in range(SEEDS):
        for name, wrap in everyone.items():
            found[name].append(trained(group, wrap, seed))
    return found


def at_goal(run: dict[str, Any]) -> int | None:
    """The number of steps, less one, with which a run is at the loss; None if it never is."""
    means = [statistics.fmean(run["losses"][n : n + 5]) for n in range(STEPS - 4)]
    return next((n + 4 for n, mean in enumerate(means) if mean <= GOAL), None)


def summed(runs: list[dict[str, Any]]) -> tuple[float, float, str] | None:
    """Mean bytes and seconds to the loss, and a note; None if a seed has not come there."""
    places = [at_goal(run) for run in runs]
    reached = [place for place in places if place is not None]
    ends = [statistics.fmean(run["losses"][-10:]) for run in runs]
    spread = f"loss at the end {statistics.fmean(ends):.2f} ± {statistics.stdev(ends):.2f}"
    if len(reached) < len(runs):
        return None
    sent = statistics.fmean(r["sent"][p] for r, p in zip(runs, reached, strict=True))
    seconds = statistics.fmean(r["seconds"][p] for r, p in zip(runs, reached, strict=True))
    return sent, seconds, f"{min(reached) + 1} to {max(reached) + 1} steps; {spread}"


def rows() -> Iterator[Row]:
    """Every way of ours; one that does not come to the loss with every seed has no row."""
    with ForkServer() as server:
        found = run_on_ranks(on_rank, WORLD, server=server, hosts=WORLD, mbit=MBIT)[1]
    size = sum(p.nbytes for p in Transformer(CONFIG).parameters())
    for name, (_, peer) in WAYS.items():
        ours, theirs = summed(found[name]), summed(found[peer])
        if ours is None or theirs is None:
            continue
        figures = (
            ("bytes", ours[0] / 1e6, theirs[0] / 1e6, "MB"),
            ("time", ours[1], theirs[1], "s"),
        )
        for what, own, others, unit in figures:
            yield Row(
                "communication", f"{name} {what}", WORLD, size, round(own, 2), round(others, 2),
                peer, unit, ours[2],
            )  # fmt: skip
