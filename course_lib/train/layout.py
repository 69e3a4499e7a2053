"""A model laid out on a mesh pp × dp × ep × cp × tp: what is applied, in which order.

Notebook: 13 3D parallelism (train_3d).
Paper: Narayanan et al., "Megatron-LM" (2021), section 3; Grattafiori et al., "The Llama 3 Herd of
Models" (2024), section 3.3.2, for the order of the axes.
Costs the sum of what each axis costs, on the part of the model and of the batch that the others
leave: see tensor_parallel, ring_attention, pipeline, expert_parallel, fsdp, zero.
The production version (torchtitan's parallelize.py) reads like this, and compiles the blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from course_lib.checkpoint import checkpoint_module
from course_lib.comm import CommError, Group, Mesh
from course_lib.model import Transformer
from course_lib.model.transformer import Attention
from course_lib.parallel import Zero1, ring_attention
from course_lib.parallel.context_parallel import SequenceLayout
from course_lib.parallel.schedule import Schedule, one_f_one_b
from course_lib.train.mesh_model import MeshModel
from course_lib.train.parallelize import expert_parallel, tensor_parallel
from course_lib.train.stage import pipeline_stages


def lay_out(
    model: Transformer,
    mesh: Mesh,
    schedule: Schedule | None = None,
    *,
    sequence: bool = False,
    recompute: bool = False,
    fsdp: bool = False,
) -> MeshModel:
    """Leaves each rank its part of a model, from the inside out; collective over the mesh.

    Args:
        model: the whole, the same on every rank, in the dtype and on the device that it is trained
            in. Its modules are cut in place; what this rank does not hold can go with it.
        mesh: who is where.
        schedule: of the pipeline, and so the number of micro-batches; 1F1B with as many as there
            are stages if None.
        sequence: sequence parallelism over tp.
        recompute: each block keeps its input only, and is computed again in backward.
        fsdp: parameters are cut over dp × ep × cp as well, block by block.

    Raises:
        CommError: a size does not fit the model, or FSDP is asked for where it cannot be.
        ScheduleError: the schedule is for another number of ranks, or has more stages than blocks.
    """
    config, tp = model.config, mesh["tp"]
    schedule = schedule or one_f_one_b(mesh["pp"].size, mesh["pp"].size)
    if tp.size > 1:
        tensor_parallel(model, tp, sequence=sequence)
    if config.moe is not None:
        expert_parallel(model, mesh["ep"], mesh["dp", "ep", "cp"])
    tokens = context_parallel(model, mesh["cp"])
    if sequence:
        _check_lengths(tokens, tp)
    if recompute:
        for block in model.blocks:
            checkpoint_module(block)
    stages = pipeline_stages(model, schedule, mesh["pp"])
    for stage in stages.values():
        stage.positions = tokens.positions(mesh["cp"].index)
        stage.auxiliary_weight = 1 / schedule.micro_batches
    return MeshModel(stages, mesh, schedule, tokens, sequence=sequence and tp.size > 1, fsdp=fsdp)


def context_parallel(model: Transformer, group: Group) -> SequenceLayout:
    """Has a model's attention go round a group, in place; says who holds which positions.

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


def _check_lengths(tokens: SequenceLayout, group: Group) -> None:
    """What each rank of cp has can be cut again, so that all refuse and none waits for another."""
    lengths = [tokens.count(index) for index in range(tokens.size)]
    if any(length % group.size for length in lengths):
        raise CommError(
            f"sequence parallelism over {group.size} ranks (axis {group.axis})",
            f"{lengths} tokens of each sequence on the {tokens.size} ranks of cp",
            "each of these is cut evenly: use a longer sequence, or smaller axes",
        )


def make_optimizers(
    model: MeshModel, kind: Callable[..., Any], *, zero1: bool = False, **options: Any
) -> list[torch.optim.Optimizer]:
    """What is applied last: who keeps which optimizer state.

    Args:
        model: on its mesh already.
        kind: an optimizer class; with `zero1` or FSDP one that works element by element.
        zero1: cut its state, and the update, over the ranks that have the same parameters.
        options: for it.

    Returns:
        One optimizer, or with `zero1` one for each set of ranks: experts have a set of their own.

    Raises:
        CommError: ZeRO-1 of a model that FSDP has cut already.
    """
    if not zero1:
        return [kind(model.parameters, **options)]
    if model.fsdp:
        raise CommError(
            f"ZeRO-1 over {model.data}",
            "a model that FSDP has cut over the same ranks",
            "its optimizer's state is cut already: leave zero1 out",
        )
    return [Zero1(held, kind, group, **options) for group, held in model.by_replicas()]
