"""Tensor, sequence and pipeline parallelism against torch's own, 4 ranks, AdamW, float32.

A GPT of 3.2 M parameters (4 blocks) under tensor parallelism, beside DTensor's `parallelize_module`
with `loss_parallel`; one of 6.3 M (8 blocks) in a pipeline of 8 micro-batches, beside
`torch.distributed.pipelining`, schedule by schedule: both sides run the same list of actions. All
are alive in the same processes and take turns (A B C ..., then backwards), one training step a
turn; a turn takes as long as its slowest rank, and medians are compared. Bytes are what a rank
sends in a step, by the formula of each operation (of DTensor without the three small reductions of
its loss, which run where the dispatch mode does not see them). Peak is the most that is held in a
step, parameters, gradients and state included, measured on both sides by `trace.memory.LiveMemory`
from before the model was made, the least of three steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining import schedules as theirs
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)

from benchmarks.row import Row
from benchmarks.training.turns import SIDES, Trainer, random_batches, rows_of, take_turns
from course_lib.comm import Group
from course_lib.model import ModelConfig, Transformer
from course_lib.model.transformer import cross_entropy
from course_lib.parallel import Pipeline, vocab_parallel_cross_entropy
from course_lib.ranks import ForkServer, run_on_ranks
from course_lib.schedule import (
    Schedule,
    dualpipe_v,
    gpipe,
    interleaved_1f1b,
    one_f_one_b,
    zb_h1,
    zb_v,
)
from course_lib.trace.memory import held_bytes
from course_lib.train import pipeline_stages, tensor_parallel

WORLD = 4
CONFIG = ModelConfig(layers=4, hidden=256, heads=4, kv_heads=4, ffn=688, sequence=64)
DEEP = ModelConfig(layers=8, hidden=256, heads=4, kv_heads=4, ffn=688, sequence=64)
BATCH, MICRO = 8, 8
LR = 1e-3


# --- tensor parallelism --------------------------------------------------------------------------
class TensorTrainer:
    """A model cut by tensor parallelism and its optimizer.

    Args:
        model: cut.
        loss_of: (logits, targets) to the mean loss.
        around: the context that the loss and its backward need.
    """

    def __init__(self, model: nn.Module, loss_of: Any, around: Any = None) -> None:
        self.model, self.loss_of, self.around = model, loss_of, around
        self.optimizer = torch.optim.AdamW(model.parameters(), LR)

    def step(self, batch: torch.Tensor) -> float:
        """Forward, backward and update; the loss."""
        self.optimizer.zero_grad()
        if self.around is None:
            return self._step(batch)
        with self.around():
            return self._step(batch)

    def _step(self, batch: torch.Tensor) -> float:
        loss = self.loss_of(self.model(batch[:, :-1]), batch[:, 1:])
        loss.backward()
        self.optimizer.step()
        return float(loss.detach() if not hasattr(loss, "full_tensor") else loss.full_tensor())

    def held(self) -> dict[str, int]:
        """Bytes of this rank's parameters and their gradients."""
        parameters = list(self.model.parameters())
        tensors = [*parameters, *(p.grad for p in parameters if p.grad is not None)]
        return {"parameters and gradients": held_bytes(tensors)}


def ours_tensor(group: Group, *, sequence: bool) -> Trainer:
    """The course's regions."""
    model = Transformer(CONFIG)
    tensor_parallel(model, group, sequence=sequence)

    def loss_of(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return vocab_parallel_cross_entropy(logits, targets, CONFIG.vocabulary, group).mean()

    return TensorTrainer(model, loss_of)


def torch_tensor(group: Group, *, sequence: bool) -> Trainer:
    """DTensor, by the plan that torchtitan uses: one conversion for query, key and value."""
    mesh = init_device_mesh("cpu", (group.size,))
    model = Transformer(CONFIG)
    between = Shard(1) if sequence else Replicate()
    plan: dict[str, Any] = {
        "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=between),
        "head": ColwiseParallel(
            input_layouts=between, output_layouts=Shard(-1), use_local_output=False
        ),
    }
    enter: dict[str, Any] = {"input_layouts": (between,), "desired_input_layouts": (Replicate(),)}
    for i in range(CONFIG.layers):
        plan[f"blocks.{i}.attention"] = PrepareModuleInput(
            input_layouts=(between, None, None), desired_input_layouts=(Replicate(), None, None)
        )
        plan[f"blocks.{i}.ffn"] = PrepareModuleInput(**enter)
        plan |= {f"blocks.{i}.attention.{n}": ColwiseParallel() for n in ("query", "key", "value")}
        plan |= {f"blocks.{i}.ffn.{n}": ColwiseParallel() for n in ("gate", "up")}
        for name in ("attention.output", "ffn.down"):
            plan[f"blocks.{i}.{name}"] = RowwiseParallel(output_layouts=between)
    if sequence:
        plan |= {n: SequenceParallel() for n, m in model.named_modules() if n.endswith("norm")}
    parallelize_module(model, mesh, plan)

    def loss_of(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    return TensorTrainer(model, loss_of, loss_parallel)


# --- pipelines -----------------------------------------------------------------------------------
class PipelineTrainer:
    """Some stages of a model, their optimizer, and what runs a batch through them.

    Args:
        stages: this rank's.
        run: a batch to the losses of its micro-batches, empty where they are not known.
    """

    def __init__(self, stages: Mapping[int, nn.Module], run: Any) -> None:
        self.run = run
        self.parameters = [p for stage in stages.values() for p in stage.parameters()]
        self.optimizer = torch.optim.AdamW(self.parameters, LR)

    def step(self, batch: torch.Tensor) -> float | None:
        """One pass of all micro-batches and the update; the mean loss on the last stage."""
        self.optimizer.zero_grad()
        losses = self.run(batch)
        self.optimizer.step()
        return torch.stack(list(losses)).mean().item() if losses else None

    def held(self) -> dict[str, int]:
        """Bytes of this rank's parameters and their gradients."""
        grads = [p.grad for p in self.parameters if p.grad is not None]
        return {"parameters and gradients": held_bytes([*self.parameters, *grads])}


def ours_pipeline(group: Group, schedule: Schedule) -> Trainer:
    """The course's runtime."""
    stages = pipeline_stages(Transformer(DEEP), schedule, group)

    def border(tokens: torch.Tensor) -> torch.Tensor:
        return torch.empty(*tokens.shape, DEEP.hidden)

    pipe = Pipeline(stages, schedule, group, loss=cross_entropy, border=border)

    def run(batch: torch.Tensor) -> list[torch.Tensor]:
        parts = batch.chunk(MICRO)
        return pipe.step([(part[:, :-1], part[:, 1:]) for part in parts])

    return PipelineTrainer(stages, run)


def torch_pipeline(group: Group, schedule: Schedule, kind: Any) -> Trainer:
    """The same stages on torch's runtime."""
    stages = pipeline_stages(Transformer(DEEP), schedule, group)
    device = torch.device("cpu")
    parts = [PipelineStage(m, s, schedule.stages, device) for s, m in stages.items()]
    single = issubclass(kind, theirs.PipelineScheduleSingle)
    runner = kind(parts[0] if single else parts, MICRO, loss_fn=cross_entropy)
    first, last = (schedule.placement[i] == group.index for i in (0, -1))

    def run(batch: torch.Tensor) -> list[torch.Tensor]:
        inputs = (batch[:, :-1],) if first else ()
        losses: list[torch.Tensor] = []
        targets = {"target": batch[:, 1:], "losses": losses} if last else {}
        runner.step(*inputs, **targets)
        return [loss.detach() for loss in losses]

    return PipelineTrainer(stages, run)


SCHEDULES: dict[str, tuple[Schedule, Any]] = {
    "gpipe": (gpipe(WORLD, MICRO), theirs.ScheduleGPipe),
    "1f1b": (one_f_one_b(WORLD, MICRO), theirs.Schedule1F1B),
    "interleaved": (interleaved_1f1b(WORLD, MICRO, 2), theirs.ScheduleInterleaved1F1B),
    "zb-h1": (zb_h1(WORLD, MICRO), theirs.ScheduleInterleavedZeroBubble),
    "zb-v": (zb_v(WORLD, MICRO), theirs.ScheduleZBVZeroBubble),
    "dualpipe-v": (dualpipe_v(WORLD, MICRO), theirs.ScheduleDualPipeV),
}
TENSOR_PEERS = {"tp": "DTensor", "sp": "DTensor"}
PIPELINE_PEERS = {
    name: f"torch {kind.__name__.removeprefix('Schedule')}" for name, (_, kind) in SCHEDULES.items()
}


def makers(group: Group) -> dict[str, Callable[[], Trainer]]:
    """Both sides of every pair."""
    found: dict[str, Callable[[], Trainer]] = {}
    for name, sequence in (("tp", False), ("sp", True)):
        for side, make in zip(SIDES, (ours_tensor, torch_tensor), strict=True):
            found[f"{name} {side}"] = partial(make, group, sequence=sequence)
    for name, (schedule, kind) in SCHEDULES.items():
        found[f"{name} ours"] = partial(ours_pipeline, group, schedule)
        found[f"{name} peer"] = partial(torch_pipeline, group, schedule, kind)
    return found


def measure(group: Group, rounds: int) -> dict[str, dict[str, Any]]:
    """What each takes on this rank; all ranks of a model see the same batch."""
    return take_turns(makers(group), random_batches(CONFIG, BATCH, rounds, seed=0), group)


def rows() -> Iterator[Row]:
    """One row for each pair and quantity; about two and a half minutes on two cores."""
    with ForkServer() as server:
        per_rank = run_on_ranks(measure, WORLD, 16, server=server, timeout=900)
    for config, peers in ((CONFIG, TENSOR_PEERS), (DEEP, PIPELINE_PEERS)):
        size = sum(p.nbytes for p in Transformer(config).parameters())
        yield from rows_of("model_parallel", per_rank, peers, size)
