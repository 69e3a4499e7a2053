"""`torch.compile` on the course's model, alone and under data parallelism, against eager.

A GPT of 0.5 M parameters, 8 rows of 64 tokens, forward and backward in float32; the peer is the
same on the same ranks without `torch.compile`. `first call` is what compiling costs, once a shape.
Modes: `default`; `reduce-overhead`, which records CUDA graphs and so changes nothing on a CPU;
`max-autotune`, which tries templates for products. Under data parallelism the blocks are compiled
one by one, inside the wrapper, as torchtitan does it. Compiled kernels are kept on disk from run to
run; here that is off, so that the first call costs what it costs. Gradients are compared with
eager's first: a way has rows only if they are equal to four digits. Rows need a C++ compiler;
without one there is none, and the note says so.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from benchmarks.row import Row
from course_lib.comm import Group
from course_lib.model import ModelConfig, Transformer, cross_entropy
from course_lib.parallel import FSDP, BucketedDDP
from course_lib.ranks import ForkServer, run_on_ranks
from course_lib.ranks.doctor import compiler

CONFIG = ModelConfig(layers=2, hidden=128, heads=4, kv_heads=4, ffn=352, sequence=64)
ROWS, ROUNDS = 8, 12
MODES = ("default", "reduce-overhead", "max-autotune")
PARALLEL = ("torch's DDP", "BucketedDDP", "FSDP2", "FSDP")
EQUAL = 1e-4


def alone(mode: str) -> nn.Module:
    """The whole model compiled."""
    model: Any = torch.compile(Transformer(CONFIG, seed=1), mode=mode)
    return model


def wrapped(way: str, group: Group, *, compiled: bool) -> nn.Module:
    """The model under a way of data parallelism, its blocks compiled or not."""
    model = Transformer(CONFIG, seed=1)
    if compiled:
        for block in model.blocks:
            block.compile()
    if way == "torch's DDP":
        return DistributedDataParallel(model)
    if way == "BucketedDDP":
        return BucketedDDP(model, group)
    if way == "FSDP":
        return FSDP(model, group, units=list(model.blocks))
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    return model


def step(model: nn.Module) -> list[torch.Tensor]:
    """Forward and backward; the gradients that this rank holds."""
    tokens = torch.randint(0, 256, (ROWS, 65), generator=torch.Generator().manual_seed(0))
    for parameter in model.parameters():
        parameter.grad = None
    cross_entropy(model(tokens[:, :-1]), tokens[:, 1:]).backward()
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    return [g.to_local() if hasattr(g, "to_local") else g for g in grads]


def compare(make: Callable[[bool], nn.Module]) -> dict[str, float]:
    """Seconds of the first call, and of a step of both sides in turns."""
    from torch._inductor import config as inductor_config  # a module that cannot be sent to ranks

    inductor_config.force_disable_caches = True
    sides = {False: make(False), True: make(True)}
    right = step(sides[False])
    begin = time.perf_counter()
    found = step(sides[True])
    first = time.perf_counter() - begin
    for one, two in zip(found, right, strict=True):
        torch.testing.assert_close(one, two, rtol=EQUAL, atol=EQUAL)
    times: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(ROUNDS):
        for side, model in sides.items():
            begin = time.perf_counter()
            step(model)
            times[side].append(time.perf_counter() - begin)
    eager, ours = (statistics.median(times[side]) for side in (False, True))
    return {"first": first, "compiled": ours, "eager": eager}


def measure_alone(group: Group, mode: str) -> dict[str, float]:
    """One rank."""
    del group
    return compare(lambda compiled: alone(mode) if compiled else Transformer(CONFIG, seed=1))


def measure_wrapped(group: Group, way: str) -> dict[str, float]:
    """Two ranks."""
    return compare(lambda compiled: wrapped(way, group, compiled=compiled))


def rows() -> Iterator[Row]:
    """Two rows for each mode and each way of data parallelism; about four minutes."""
    if compiler() is None:
        yield Row("compiled", "skipped", 1, 0, 0.0, None, "", "s", "there is no C++ compiler here")
        return
    tasks: list[tuple[str, Callable[..., dict[str, float]], int]] = [
        (mode, measure_alone, 1) for mode in MODES
    ]
    tasks += [(way, measure_wrapped, 2) for way in PARALLEL]
    for name, measure, world in tasks:
        with ForkServer() as server:
            found = run_on_ranks(measure, world, name, server=server, timeout=300)
        slowest = {what: max(one[what] for one in found) for what in found[0]}
        ours, eager = 1e3 * slowest["compiled"], 1e3 * slowest["eager"]
        yield Row("compiled", f"step, {name}", world, 0, ours, eager, "eager", "ms")
        first = slowest["first"]
        yield Row("compiled", f"first call, {name}", world, 0, first, None, "", "s")
