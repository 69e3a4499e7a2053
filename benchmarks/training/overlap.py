"""Data-parallel steps on 2 ranks whose hosts are joined at 300 Mbit/s, against torch's DDP.

A step of a transformer of 3.3 M parameters (13.4 MB of gradients, float32, batch 4 of 128 tokens):
forward, backward, synchronise, SGD. All ways have a replica of their own, live in the same ranks
and take turns, a step each; a step takes as long as its slowest rank, and medians over the turns
are compared. The peer is `DistributedDataParallel(gradient_as_bucket_view=True)` with the same
bucket cap, its default (25 MiB) where ours has none; torch makes its first bucket as large as the
cap if one is given, ours is 1 MiB at most. The note is what the step takes beyond one without
communication. Needs root on Linux: hosts are emulated (`course_lib.ranks.hosts.hosts`).

`python -m benchmarks.training.overlap FILE` records it, for notebooks on machines where hosts
cannot be emulated. A rank's value is, for each way, `ms`, the median, and `ledger`, the ledger of
the turn that took so long: spans, marks and, for ours, the all-reduces until the data were there.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from benchmarks.collectives import medians
from benchmarks.row import Row
from course_lib.comm import Group, all_reduce, barrier
from course_lib.model import ModelConfig, Transformer, cross_entropy
from course_lib.parallel import BucketedDDP, NaiveDDP, OverlapDDP
from course_lib.ranks import ForkServer, run_on_ranks
from course_lib.ranks.hosts.recorded import run_live
from course_lib.trace import Ledger
from course_lib.trace.event import Span

WORLD, HOSTS, MBIT = 2, 2, 300
CONFIG = ModelConfig(layers=4, hidden=256, heads=4, kv_heads=4, ffn=704, sequence=128)
BATCH = 4
DEFAULT = "25 MiB"
CAPS = {DEFAULT: 25 << 20, "4 MiB": 4 << 20, "1 MiB": 1 << 20, "256 KiB": 256 << 10}
TURNS, WARM_UP = 9, 2


class Way:
    """One way to train: a replica, an optimizer, and a ledger of its own.

    Args:
        group: both ranks.
        wrap: makes the replica data-parallel.
        synchronize: what is called between backward and the optimizer's step, if anything.
    """

    def __init__(
        self,
        group: Group,
        wrap: Callable[[nn.Module, Group], nn.Module],
        synchronize: Callable[[Any, Group], None] | None = None,
    ) -> None:
        self.group = group.under(group.axis, Ledger(group.rank))
        bare = Transformer(CONFIG)
        self.parameters = list(bare.parameters())
        self.model = wrap(bare, self.group)
        self.synchronize = synchronize
        self.optimizer = torch.optim.SGD(self.parameters, lr=0.01)
        self.last_gradient = 0.0
        for parameter in self.parameters:
            parameter.register_post_accumulate_grad_hook(self._on_gradient)

    def _on_gradient(self, _: torch.Tensor) -> None:
        self.last_gradient = time.monotonic()

    def step(self, tokens: torch.Tensor) -> None:
        """Trains on one batch; the span `backward` ends with the last gradient, not with a wait."""
        ledger = self.group.ledger
        with ledger.span("forward"):
            loss = cross_entropy(self.model(tokens[:, :-1]), tokens[:, 1:])
        begin = time.monotonic()
        loss.backward()
        ledger.spans.append(Span(ledger.rank, "backward", begin, self.last_gradient))
        if self.synchronize is not None:
            self.synchronize(self.model, self.group)
        with ledger.span("step"):
            self.optimizer.step()
            self.optimizer.zero_grad()


def all_at_once(model: nn.Module, group: Group) -> None:
    """One all-reduce of all gradients, copied into one tensor, when backward is over."""
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    all_reduce(flat, group, "avg")
    parts = flat.split([gradient.numel() for gradient in gradients])
    for gradient, part in zip(gradients, parts, strict=True):
        gradient.copy_(part.view_as(gradient))


def torch_ddp(cap: int) -> Callable[[nn.Module, Group], nn.Module]:
    """DDP of torch with a bucket cap in bytes; its own default where that is the same."""
    size = None if cap == CAPS[DEFAULT] else cap / (1 << 20)

    def wrap(module: nn.Module, group: Group) -> nn.Module:
        return DistributedDataParallel(
            module, process_group=group.handle, bucket_cap_mb=size, gradient_as_bucket_view=True
        )

    return wrap


def bucketed(cap: int) -> Callable[[nn.Module, Group], nn.Module]:
    """Ours with a bucket cap in bytes."""
    return lambda module, group: BucketedDDP(module, group, cap, min(cap, 1 << 20))


def ways(group: Group) -> dict[str, Way]:
    """Everything that takes turns; `alone` does not communicate."""
    found = {
        "alone": Way(group, lambda module, group: module),
        "flat": Way(group, lambda module, group: module, all_at_once),
        "naive": Way(group, NaiveDDP, lambda model, group: model.synchronize()),
        "overlap": Way(group, OverlapDDP),
    }
    for label, cap in CAPS.items():
        found[f"bucketed {label}"] = Way(group, bucketed(cap))
        found[f"torch {label}"] = Way(group, torch_ddp(cap))
    return found


def batch(rank: int, number: int) -> torch.Tensor:
    """Tokens of one rank and turn, int64 [BATCH, T+1]."""
    generator = torch.Generator().manual_seed(number * WORLD + rank)
    shape = (BATCH, CONFIG.sequence + 1)
    return torch.randint(CONFIG.vocabulary, shape, generator=generator)


def turns(takers: dict[str, Way], group: Group) -> Iterator[tuple[str, float]]:
    """The ways by turns: name and seconds of one step on this rank; what warms up is left out."""
    for number in range(WARM_UP + TURNS):
        tokens = batch(group.rank, number)
        for name in takers if number % 2 else reversed(takers):
            takers[name].group.ledger = Ledger(group.rank)
            barrier(group)
            begin = time.perf_counter()
            takers[name].step(tokens)
            seconds = time.perf_counter() - begin
            if number >= WARM_UP:
                yield name, seconds
    check_equal(takers)


def check_equal(takers: dict[str, Way]) -> None:
    """All ways must have trained the same model, up to the order of sums.

    Raises:
        AssertionError: one has not.
    """
    expected = takers["flat"].parameters
    for name, way in takers.items():
        if name != "alone":
            for mine, theirs in zip(way.parameters, expected, strict=True):
                torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


def times_on_rank(group: Group) -> dict[str, list[float]]:
    """What `rows` runs on each rank: seconds of every turn, way by way."""
    takers = ways(group)
    times: dict[str, list[float]] = {name: [] for name in takers}
    for name, seconds in turns(takers, group):
        times[name].append(seconds)
    return times


# --- the recording -------------------------------------------------------------------------------
def steps_on_rank(group: Group) -> dict[str, dict[str, Any]]:
    """What is recorded on each rank: way to `ms` and `ledger`."""
    takers = ways(group)
    times: dict[str, list[float]] = {name: [] for name in takers}
    ledgers: dict[str, list[Ledger]] = {name: [] for name in takers}
    for name, seconds in turns(takers, group):
        slowest = torch.tensor(seconds, dtype=torch.float64)
        all_reduce(slowest, group, "max")
        times[name].append(float(slowest))
        ledgers[name].append(takers[name].group.ledger)
    found = {}
    for name, values in times.items():
        middle = values.index(statistics.median(values))  # the number of turns is odd
        ledger = ledgers[name][middle].to_dict()
        found[name] = {"ms": round(values[middle] * 1e3, 1), "ledger": ledger}
    return found


def record(path: str) -> None:
    """Writes the recording of this machine."""
    with ForkServer() as server:
        run = run_live(steps_on_rank, WORLD, hosts=HOSTS, mbit=MBIT, server=server)
    run.save(path)
    for name, value in run.values[0].items():
        print(f"{name:20} {value['ms']:8.1f} ms")


def rows() -> Iterator[Row]:
    """Every way of ours against torch's with the same cap; about two minutes on two cores."""
    with ForkServer() as server:
        found = medians(run_on_ranks(times_on_rank, WORLD, server=server, hosts=HOSTS, mbit=MBIT))
    size = sum(p.nbytes for p in Transformer(CONFIG).parameters())
    alone = round(found["alone"] * 1e3, 1)
    yield Row("overlap", "alone step", WORLD, size, alone, None, "", "ms")
    for name in ("flat", "naive", "overlap", *(f"bucketed {label}" for label in CAPS)):
        way, _, label = name.partition(" ")
        peer = label or DEFAULT
        yield Row(
            "overlap", f"{way} step", WORLD, CAPS.get(label, size), round(found[name] * 1e3, 1),
            round(found[f"torch {peer}"] * 1e3, 1), f"torch DDP, {peer}", "ms",
            f"{(found[name] - found['alone']) * 1e3:.0f} ms beyond alone",
        )  # fmt: skip


if __name__ == "__main__":
    record(sys.argv[1])
