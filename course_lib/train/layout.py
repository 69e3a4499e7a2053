"""A model laid out on a mesh pp × dp × ep × cp × tp: what is applied, in which order.

Notebook: 13 3D parallelism (train_3d).
Paper: Narayanan et al., "Megatron-LM" (2021), section 3; Grattafiori et al., "The Llama 3 Herd of
Models" (2024), section 3.3.2, for the order of the axes.
Costs the sum of what each axis costs, on the part of the model and of the batch that the others
leave: see tensor_parallel, ring_attention, pipeline, expert_parallel, fsdp, zero.
The production version (torchtitan's parallelize.py) reads like this, and compiles the blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch

from course_lib.comm import CommError, Group, Mesh
from course_lib.layout import Layout, misfits
from course_lib.model import ModelConfig, Transformer
from course_lib.model.transformer import Attention
from course_lib.parallel import Zero1, Zero2, ring_attention
from course_lib.parallel.context.context_parallel import SequenceLayout
from course_lib.parallel.pipeline.runtime import refuse_other_size
from course_lib.recompute import checkpoint, checkpoint_module, selective
from course_lib.schedule import Schedule, one_f_one_b
from course_lib.train.compute import lower_precision
from course_lib.train.mesh_model import NO_RING_MASK, MeshModel, zero_refusal
from course_lib.train.parallelize import expert_parallel, tensor_parallel
from course_lib.train.stage import drop_other_blocks, pipeline_stages, stage_blocks


def lay_out(
    model: Transformer,
    mesh: Mesh,
    schedule: Schedule | None = None,
    *,
    sequence: bool = False,
    precision: str = "fp32",
    recompute: str = "none",
    zero: int = 0,
    shard: int = 0,
    documents: bool = False,
) -> MeshModel:
    """Cuts a model so that each rank keeps its part, from the inside out; collective over the mesh.

    Args:
        model: the whole, the same on every rank, in the dtype that its weights are kept in and on
            the device that it is trained on. Its modules are cut in place; drop it afterwards, and
            what this rank does not hold is freed.
        mesh: who is where.
        schedule: of the pipeline, and so the number of micro-batches; 1F1B with as many as there
            are stages if None.
        sequence: sequence parallelism over tp.
        precision: what is computed in, see `train/compute.py`; weights, gradients and their sums
            are in the model's own dtype. `fp16` needs a loss scaler in each step.
        recompute: `full`, each block keeps its input only, and is computed again in backward;
            `selective`, it keeps the results of its matrix products too; `none`.
        zero: what is cut over the ranks that have other tokens: 1 optimizer state, 2 gradients too,
            3 parameters too, block by block (FSDP).
        shard: with `zero` 3, how many neighbours among those ranks share one copy of the model
            (HSDP); 0 for all of them.
        documents: a token sees its own document only; not with context parallelism.

    Raises:
        CommError: a size does not fit the model, or this stage of ZeRO does not go with the rest.
        ScheduleError: the schedule is for another number of ranks, or has more stages than blocks.
        Refusal: a word or a number that is none of those above. In all cases the model is whole
            still, on every rank.
    """
    config, tp = model.config, mesh["tp"]
    schedule = schedule or one_f_one_b(mesh["pp"].size, mesh["pp"].size)
    _refuse_misfits(
        config, mesh, schedule, shard, documents,
        sequence=sequence, precision=precision, recompute=recompute, zero=zero,
    )  # fmt: skip
    drop_other_blocks(model, schedule, mesh["pp"])
    if tp.size > 1:
        tensor_parallel(model, tp, sequence=sequence)
    if config.moe is not None:
        expert_parallel(model, mesh["ep"], mesh["dp", "ep", "cp"])
    tokens = context_parallel(model, mesh["cp"])
    dtype = lower_precision(model, precision, gathered=zero == 3)
    if recompute != "none":
        for block in model.blocks:
            checkpoint_module(block, checkpoint if recompute == "full" else selective())
    stages = pipeline_stages(model, schedule, mesh["pp"])
    for stage in stages.values():
        stage.positions = tokens.positions(mesh["cp"].index)
    return MeshModel(
        stages, mesh, schedule, tokens,
        sequence=sequence and tp.size > 1, dtype=dtype, zero=zero, shard=shard, documents=documents,
    )  # fmt: skip


def context_parallel(model: Transformer, group: Group) -> SequenceLayout:
    """Makes a model's attention ring attention over a group; returns who holds which positions.

    Args:
        model: its sequences are all as long as its config says.
        group: the ranks that share each sequence.
    """
    layout = SequenceLayout.zigzag(model.config.sequence, group.size)
    if group.size > 1:
        for module in model.modules():
            if isinstance(module, Attention):
                module.attend = partial(ring_attention, layout=layout, group=group)
    return layout


def _refuse_misfits(
    config: ModelConfig, mesh: Mesh, schedule: Schedule, shard: int, documents: bool, **how: Any
) -> None:
    """Refuses what cannot be laid out, before anything is cut; the same on every rank."""
    ep = mesh["ep"].size if config.moe else 1  # without experts ep is more of dp
    layout = Layout(ep=ep, cp=mesh["cp"].size, tp=mesh["tp"].size, **how)
    for refusal in misfits(config, layout):
        raise CommError(refusal.asked, refusal.found, refusal.why)
    refuse_other_size(schedule, mesh["pp"])
    stage_blocks(config, schedule.stages)
    data = mesh["dp", "ep", "cp"]
    reason = zero_refusal(layout.zero, schedule, config)
    if reason is not None:
        raise CommError(f"ZeRO-{layout.zero} over {data}", *reason)
    if shard and shard != data.size and (layout.zero != 3 or shard < 1 or data.size % shard):
        raise CommError(
            f"copies of the model, each cut over {shard} ranks",
            f"ZeRO-{layout.zero} over {data}",
            "with ZeRO-3 (FSDP) all copies are cut over equally many ranks",
        )
    if documents and layout.cp > 1:
        raise CommError("attention inside each document", f"{mesh['cp']}", NO_RING_MASK)


def make_optimizers(
    model: MeshModel, kind: Callable[..., Any], **options: Any
) -> list[torch.optim.Optimizer]:
    """Makes the optimizers, which come last: they say who keeps which optimizer state.

    Args:
        model: on its mesh already.
        kind: an optimizer class; with any stage of ZeRO one that works element by element.
        options: for it.

    Returns:
        One optimizer, or with ZeRO-1 and 2 one for each set of ranks that have the same parameters:
        experts have a set of their own. None where all that this rank has is frozen.
    """
    if model.zero not in (1, 2):
        return [kind(model.parameters, **options)] if model.parameters else []
    sharded = Zero1 if model.zero == 1 else Zero2
    return [sharded(held, kind, group, **options) for group, held in model.by_replicas()]


def make_state(optimizers: Iterable[torch.optim.Optimizer]) -> None:
    """Has each optimizer make its state, for a single step on a simulated cluster.

    In the first step of a run activations are gone before there is any state, so that it holds less
    than all others. The state comes from an update with gradients of zero, which would let real
    weights decay.
    """
    for optimizer in optimizers:
        inner = getattr(optimizer, "inner", optimizer)
        for held in inner.param_groups:
            for parameter in held["params"]:
                parameter.grad = torch.zeros_like(parameter)
        inner.step()
        inner.zero_grad()
