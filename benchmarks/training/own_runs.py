"""What a step of the course's own training takes on this machine: bytes by class, on every rank.

Used beside `course_lib.plan.memory`, which predicts the same: by `benchmarks plan` and by its test.
Models are small, so that a run takes tenths of a second; bytes do not depend on the machine.
"""

from __future__ import annotations

from typing import Any

import torch

from course_lib.comm import Group, Mesh
from course_lib.layout import Layout
from course_lib.model import AdamW, ModelConfig, MoEConfig, Transformer
from course_lib.plan.time.stages import schedule_of
from course_lib.trace.memory import LiveMemory, held_bytes
from course_lib.train import lay_out, make_optimizers, own_micro_batches, train_step

DENSE = ModelConfig(
    layers=4, hidden=64, heads=4, kv_heads=2, ffn=160, vocabulary=96, sequence=32
)  # fmt: skip
TIED = ModelConfig(
    layers=6, hidden=96, heads=4, kv_heads=1, ffn=97, vocabulary=301, sequence=32, gated=False,
    tied=True,
)  # fmt: skip
EXPERTS = ModelConfig(
    layers=4, hidden=64, heads=4, kv_heads=2, ffn=48, vocabulary=96, sequence=32,
    moe=MoEConfig(experts=4, top_k=2),
)  # fmt: skip
STEP: dict[str, Any] = {"micro_batch_size": 2, "micro_batches": 4, "precision": "fp32"}
RUNS = {
    "recompute full": (TIED, Layout(recompute="full", **STEP)),
    "recompute selective": (DENSE, Layout(recompute="selective", **STEP)),
    "tp 2, sequence": (DENSE, Layout(tp=2, sequence=True, **STEP)),
    "tp 2, recompute selective": (TIED, Layout(tp=2, recompute="selective", **STEP)),
    "cp 2, ZeRO-1": (DENSE, Layout(cp=2, zero=1, **STEP)),
    "dp 2, ZeRO-2": (DENSE, Layout(dp=2, zero=2, **STEP)),
    "dp 2, FSDP": (TIED, Layout(dp=2, zero=3, **STEP)),
    "ep 2": (EXPERTS, Layout(ep=2, **STEP)),
    "pp 3": (TIED, Layout(pp=3, **STEP)),
    "pp 2, ZB-V": (DENSE, Layout(pp=2, schedule="ZB-V", **STEP)),
    "pp 2, interleaved": (
        TIED,
        Layout(pp=2, schedule="interleaved 1F1B", chunks=2, **STEP),
    ),
    "pp 2, tp 2, sequence, ZeRO-1": (DENSE, Layout(pp=2, tp=2, sequence=True, zero=1, **STEP)),
}


def measured(group: Group, config: ModelConfig, layout: Layout) -> tuple[int, dict[str, int]]:
    """This rank's index along pp, and its bytes; activations are those at the peak of a step."""
    torch.set_num_threads(1)
    mesh = Mesh(group, {axis: getattr(layout, axis) for axis in ("pp", "dp", "ep", "cp", "tp")})
    model = lay_out(
        Transformer(config, seed=1), mesh, schedule_of(layout),
        sequence=layout.sequence, recompute=layout.recompute, zero=layout.zero,
    )  # fmt: skip
    optimizers = make_optimizers(model, AdamW)
    shape = (layout.batch, config.sequence + 1)
    tokens = torch.randint(config.vocabulary, shape, generator=torch.Generator().manual_seed(0))
    batches = own_micro_batches(tokens[:, :-1], tokens[:, 1:].clone(), model)
    train_step(model, batches, optimizers)
    inner = [getattr(optimizer, "inner", optimizer) for optimizer in optimizers]
    state = [t for one in inner for s in one.state.values() for t in s.values()]
    bytes_ = {"parameters": held_bytes(model.parameters), "optimizer": held_bytes(state)}
    for optimizer in optimizers:
        optimizer.zero_grad()
    with LiveMemory() as live:  # with nothing else left, this is what gradients take
        model.pipeline.step(batches)
        bytes_["gradients"] = live.settle(0, patience=0.2)
    with LiveMemory() as live:
        model.pipeline.step(batches)
    return mesh["pp"].index, {**bytes_, "activations": live.peak}
