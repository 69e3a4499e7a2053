"""One GPU beside what the course says of it; measures nothing on a machine without one.

- `fp8 ...`: products of 8-bit numbers on the GPU's own unit beside the same product in bf16, and a
  linear layer, forward and backward, beside torch's `_scaled_mm` and beside bf16.
- `... step`, `... peak`: the wrappers in an NCCL group of one rank, where nothing is sent, so that
  what is left is what each costs by itself; a transformer in bf16, ours and torch's in turns.
- `simulated ...`: a step of the training command as the simulated GPU predicts it (ours) beside
  the same step on the real one (peer): seconds, and the most bytes that are held.

Times are medians of steps, between two waits for the GPU; peaks are the allocator's. Where our DDP
is slower than torch's, its host waits for each all-reduce (`comm/work.py`), while torch's queues
the optimizer's kernels behind it. The simulated GPU has no host: small operations, which a real
host queues slower than the GPU computes, cost too little on it. Nor does it count the 64 MiB in
which cuBLAS works.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint as torch_checkpoint

from benchmarks.peers.scaled_mm import TorchFp8
from benchmarks.row import Row
from benchmarks.training.data_parallel import LR, PAIRS, Trainer
from benchmarks.training.turns import SIDES
from course_lib.cluster import simulate
from course_lib.comm import Group, Mesh
from course_lib.model import AdamW, ModelConfig, Transformer
from course_lib.plan.inputs.hardware import NODES
from course_lib.precision import CurrentScaling, fp8_linear, quantize_now
from course_lib.precision.formats import E4M3FN
from course_lib.precision.fp8_matmul import scaled_matmul
from course_lib.ranks import ForkServer, run_on_ranks
from course_lib.recompute import checkpoint_module
from course_lib.train.command.config import RunConfig
from course_lib.train.layout import lay_out, make_optimizers
from course_lib.train.simulated import one_step
from course_lib.train.step import own_micro_batches, train_step

Result = TypeVar("Result")

ROUNDS = 8  # of which the first two warm up
PRODUCTS = (2048, 4096, 8192)  # rows, columns and terms of a square product
LINEAR = (8192, 4096, 14336)  # tokens, and the widths of the layer
CONFIG = ModelConfig(layers=12, hidden=1024, heads=16, kv_heads=16, ffn=2816, sequence=1024)
BATCH = 8
# Shapes that are trained on one GPU: small and narrow, wide, and Llama 3 8B's blocks.
SHAPES: dict[str, dict[str, Any]] = {
    "0.15B": {"layers": 12, "hidden": 1024, "heads": 16, "kv_heads": 16, "ffn": 2816,
              "sequence": 1024, "batch": 16},
    "0.8B": {"layers": 16, "hidden": 2048, "heads": 16, "kv_heads": 16, "ffn": 5632,
             "sequence": 2048, "batch": 8},
    "0.9B as Llama 3 8B": {"layers": 4, "hidden": 4096, "heads": 32, "kv_heads": 8, "ffn": 14336,
                           "sequence": 4096, "batch": 4},
}  # fmt: skip
RECOMPUTE = ("none", "full")


def in_turns(calls: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Milliseconds of each, the median of turns, each between two waits for the GPU."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(ROUNDS):
        for name in calls if number % 2 else reversed(list(calls)):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            calls[name]()
            torch.cuda.synchronize()
            times[name].append((time.perf_counter() - begin) * 1e3)
    return {name: statistics.median(values[2:]) for name, values in times.items()}


def with_peak(call: Callable[[], Result]) -> tuple[Result, float]:
    """What a call returns, and the most MB given out meanwhile beyond what was held before."""
    gc.collect()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    result = call()
    torch.cuda.synchronize()
    return result, (torch.cuda.max_memory_allocated() - before) / 1e6


# --- 8-bit products ------------------------------------------------------------------------------
def measure_fp8(group: Group) -> dict[str, dict[str, float]]:
    """Milliseconds of products and of a linear layer."""
    found = {}
    for size in PRODUCTS:
        wide = torch.randn(size, size, device=group.device, dtype=torch.bfloat16)
        eight = quantize_now(wide.float(), E4M3FN)
        found[f"fp8 product {size}"] = in_turns(
            {"ours": partial(scaled_matmul, eight, eight), "bf16": partial(torch.mm, wide, wide)}
        )
    tokens, width, out = LINEAR
    x, weight, grad = (
        torch.randn(shape, device=group.device, requires_grad=shape != (tokens, out))
        for shape in ((tokens, width), (out, width), (tokens, out))
    )
    scalers = CurrentScaling().scalers()
    ways: dict[str, Callable[[Any, Any], torch.Tensor]] = {
        "ours": lambda x, w: fp8_linear(x, w, None, scalers),
        "torch._scaled_mm": TorchFp8.apply,
        "bf16": lambda x, w: F.linear(x.bfloat16(), w.bfloat16()).float(),
        "float32": F.linear,
    }

    def both(way: Callable[[Any, Any], torch.Tensor]) -> None:
        x.grad = weight.grad = None
        way(x, weight).backward(grad)

    found["fp8 linear"] = in_turns({name: partial(both, way) for name, way in ways.items()})
    return found


# --- wrappers ------------------------------------------------------------------------------------
def plain(model: Transformer, group: Group) -> Trainer:
    """No wrapper."""
    return Trainer(model, torch.optim.AdamW(model.parameters(), LR))


def ours_recomputed(model: Transformer, group: Group) -> Trainer:
    """Each block is computed again in backward."""
    for block in model.blocks:
        checkpoint_module(block)
    return plain(model, group)


def torch_recomputed(model: Transformer, group: Group) -> Trainer:
    """The same by torch's."""
    for block in model.blocks:
        block.forward = partial(torch_checkpoint, block.forward, use_reentrant=False)
    return plain(model, group)


WRAPPERS = {
    **{name: PAIRS[name] for name in ("ddp", "zero1", "fsdp")},
    "recomputed": (ours_recomputed, torch_recomputed, "torch.utils.checkpoint"),
}


def measure_wrappers(group: Group) -> dict[str, dict[str, float]]:
    """Step and peak of each side of each pair."""
    tokens = torch.randint(0, 256, (BATCH, CONFIG.sequence + 1), device=group.device)
    found: dict[str, dict[str, float]] = {}
    for name, pair in WRAPPERS.items():
        steps: dict[str, Callable[[], object]] = {}
        peaks: dict[str, float] = {}
        for side, make in zip(SIDES, pair[:2], strict=True):
            steps[side], peaks[side] = with_peak(partial(_first_steps, make, group, tokens))
        found |= {f"{name} peak": peaks, f"{name} step": in_turns(steps)}
    return found


def _first_steps(make: Any, group: Group, tokens: torch.Tensor) -> Callable[[], object]:
    """Makes a trainer, and returns its next step."""
    trainer = make(Transformer(CONFIG).to(group.device, torch.bfloat16), group)
    for _ in range(2):
        trainer.step(tokens)
    return partial(trainer.step, tokens)


# --- a simulated GPU beside the real one ---------------------------------------------------------
def configs() -> dict[str, RunConfig]:
    """What is trained, by name."""
    return {
        f"{shape}, {recompute}": RunConfig(precision="bf16", recompute=recompute, **sizes)
        for shape, sizes in SHAPES.items()
        for recompute in RECOMPUTE
    }


def real_step(group: Group, config: RunConfig) -> dict[str, float]:
    """Milliseconds and peak of a step of the training command."""

    def train() -> float:
        model = lay_out(
            Transformer(config.model).to(group.device),
            Mesh(group, config.degrees),
            precision=config.precision,
            recompute=config.recompute,
        )
        optimizers = make_optimizers(model, AdamW)
        tokens = torch.zeros(
            config.batch, config.sequence, dtype=torch.int64, device=group.device
        ).random_(0, config.model.vocabulary)
        batches = own_micro_batches(tokens, tokens, model)
        step = partial(train_step, model, batches, optimizers, config.max_norm)
        return in_turns({"step": step})["step"]

    ms, mb = with_peak(train)
    return {"ms": ms, "MB": mb}


def simulated(config: RunConfig, gpu: str) -> dict[str, float]:
    """The same, as the simulated cluster predicts it."""
    run = simulate(one_step, 1, config, cluster=f"1x{gpu}")
    return {"ms": run.value(0) * 1e3, "MB": run.memories[0].peak / 1e6}


def name_of(device: int = 0) -> str:
    """The GPU of this machine as the table of GPUs has it; "" if it has not."""
    words = torch.cuda.get_device_name(device).replace("-", " ").split()
    return next((name for name in NODES if name in words), "")


# --- all of it -----------------------------------------------------------------------------------
def rows() -> Iterator[Row]:
    """All parts; about a minute on a GPU."""
    if not torch.cuda.is_available():
        return
    gpu = torch.cuda.get_device_name()
    with ForkServer() as server:
        run = partial(run_on_ranks, server=server, timeout=300)
        (times,) = run(measure_fp8, 1)
        for what, by_way in times.items():
            for peer in [way for way in by_way if way != "ours"]:
                yield Row("one_gpu", what, 1, 0, by_way["ours"], by_way[peer], peer, "ms", gpu)
        (found,) = run(measure_wrappers, 1)
        for what, sides in found.items():
            peer, unit = WRAPPERS[what.split()[0]][2], "ms" if what.endswith("step") else "MB"
            yield Row("one_gpu", what, 1, 0, sides["ours"], sides["peer"], peer, unit, gpu)
        known = name_of()
        for what, config in configs().items() if known else ():
            (real,) = run(real_step, 1, config)
            predicted = simulated(config, known)
            for unit, label in (("ms", "step"), ("MB", "peak")):
                yield Row(
                    "one_gpu", f"simulated {label}: {what}", 1, 0, predicted[unit], real[unit],
                    "the GPU", unit, gpu,
                )  # fmt: skip
