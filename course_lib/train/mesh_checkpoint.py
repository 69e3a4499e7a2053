"""Checkpoints of a model on a mesh: what each rank has, as boxes of the whole model's tensors.

Notebook: 11 Distributed checkpoint (load_resharded), 13 3D parallelism (train_3d).
Source: Megatron-core's ShardedTensor, which says of each part of a parameter where it lies.
Costs what save_sharded and load_resharded cost: every element is written once, by one of the ranks
that have it, and a rank reads what it holds. No tensor is on the wire.
The production version (torchtitan) asks each DTensor, whose placements name one axis after another.

The axes cut one after the other, and so do the boxes, from the outside in:

    pp, ep    which names a rank has: blocks and experts keep those of the whole model
    tp        of each the rows, the columns, or all of them
    ZeRO      of the optimizer's states, a stretch of that, flattened
    FSDP      of the parameters as well

What several ranks have without being cut alike is saved by the first of them: ranks of tp have all
of a norm, and a key-value head together; both ends of a pipeline have a tied embedding. On each of
these ranks it may lie next to parameters of other sizes, so FSDP and ZeRO may cut it at other
places there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from course_lib.checkpoint import (
    Checkpoint,
    CheckpointError,
    Held,
    Stateful,
    Training,
    cut_by_zero,
    find_checkpoint,
    hold_stage,
    hold_whole,
    model_pieces,
)
from course_lib.checkpoint.files.manifest import DTYPES
from course_lib.model import ModelConfig, Transformer
from course_lib.parallel.zero.zero1 import ShardedOptimizer
from course_lib.recompute.checkpoint import RandomState
from course_lib.train.copies import tensor_copies
from course_lib.train.mesh_model import MeshModel

EMBEDDING, HEAD = "embedding.weight", "head.weight"  # one tensor if tied, saved as the first


def mesh_training(
    model: MeshModel,
    optimizers: Sequence[torch.optim.Optimizer],
    parts: Mapping[str, Stateful] | None = None,
    generators: Mapping[str, RandomState] | None = None,
) -> Training:
    """What `save_training` saves, and `resume_training` fills, on any mesh.

    Args:
        model: from `lay_out`.
        optimizers: from `make_optimizers`; all have the same options, also after a schedule.
        parts: what else goes on from step to step, as for `Training`: the position in the data.
        generators: the same.
    """
    held = hold_mesh(model)
    sharded = [optimizer for optimizer in optimizers if isinstance(optimizer, ShardedOptimizer)]
    pieces = [piece for optimizer in sharded for piece in cut_by_zero(held, optimizer)]
    schedule, sequence = model.pipeline.schedule, "cut sequences, " * model.sequence
    return Training(
        held,
        list(optimizers),
        [*held, *pieces],
        parts or {},
        generators or {},
        how=f"{model.mesh.sizes}, {sequence}{schedule.micro_batches} × {schedule.name}",
    )


def hold_mesh(model: MeshModel) -> list[Held]:
    """This rank's parameters and buffers, or with FSDP its pieces of them, as in the whole model.

    Args:
        model: between two steps.
    """
    shapes, tp = whole_shapes(model.config), model.mesh["tp"]
    held: dict[torch.Tensor, Held] = {}
    for _, stage in sorted(model.pipeline.stages.items()):
        inner, parts = hold_stage(stage, shapes, tp)
        sharers: dict[Any, int] = tensor_copies(inner, model.config, tp)
        for part in parts:
            copy = tp.index % sharers.get(part.tensor, 1) != 0  # neighbours have the same part
            if model.config.tied and part.name == HEAD:
                part = replace(part, name=EMBEDDING)
                copy = copy or inner.embedding is None
            held.setdefault(part.tensor, replace(part, copy=copy))
    return list(held.values())


def whole_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """The shape of each parameter and buffer of a model, by name; takes no memory for them."""
    with torch.device("meta"):
        model = Transformer(config)
    return {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}


def whole_model(source: Checkpoint | Path | str, config: ModelConfig) -> Transformer:
    """The model in a checkpoint of any mesh; for one process, not collective.

    Args:
        source: the checkpoint, or the folder of all, for the newest complete one.
        config: of the model that was saved.

    Returns:
        The model on the CPU, in the dtype that was saved.

    Raises:
        CheckpointError: there is no checkpoint, it is damaged, or it is of another model.
    """
    checkpoint = source if isinstance(source, Checkpoint) else find_checkpoint(source)
    tensors = checkpoint.manifest.tensors
    model = Transformer(config)
    first_names = {h.tensor: f"model.{h.name}" for h in reversed(hold_whole(model))}
    other = {name for name in tensors if name.startswith("model.")} ^ set(first_names.values())
    if other:
        raise CheckpointError(
            f"a model of {config.layers} blocks from {checkpoint.folder}",
            f"{len(other)} tensors on one side only, such as {min(other)}",
            "the config is that of the model that was saved",
        )
    model.to(DTYPES[tensors[f"model.{EMBEDDING}"].dtype])
    checkpoint.read([p for p in model_pieces(hold_whole(model)) if p.name in tensors])
    return model
