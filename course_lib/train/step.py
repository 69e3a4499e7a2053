"""One training step of a model on a mesh: count, run, finalise, clip, update.

Notebook: 13 3D parallelism (global_loss_and_tokens, finalize_grads, train_3d).
Paper: Narayanan et al., "Megatron-LM" (2021), section 3; Korthikanti et al. (2022) for norms.
Costs, on top of what the model sends: 8 bytes summed over dp × ep × cp for the tokens, 8 over all
but tp for the loss, 8 over all ranks for the norm, and the gradients' bytes, 2(N-1)/N·S over the
dp × ep × cp ranks, S the bytes of this rank's part of the model.
The production version overlaps the gradients' reduction with backward, and sums the loss over the
ranks only every few steps.

The loss is a sum over all counted tokens of the batch, divided by how many those are: not a mean of
means, which would weigh the tokens of a short micro-batch, or of a rank with much padding, more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from course_lib.comm import CommError, Group, Mesh, all_reduce
from course_lib.model import update_router_bias
from course_lib.parallel import Zero1, shard_sequence, sum_tied_gradient
from course_lib.parallel.data.accumulate import Batch, count_tokens
from course_lib.parallel.expert.expert_gradients import average_over_replicas
from course_lib.parallel.zero.zero1 import ShardedOptimizer
from course_lib.precision import DynamicLossScaler
from course_lib.train.grad_norm import clip_grad_norm_nd
from course_lib.train.mesh_model import IGNORED, MeshModel

Optimizers = Sequence[torch.optim.Optimizer]


@dataclass(frozen=True)
class StepReport:
    """What a step says, the same on every rank.

    Attributes:
        loss: nats per counted token, before the update, without auxiliary losses.
        tokens: counted tokens of the whole batch.
        norm: of the gradients, before clipping.
        made: whether the update was made; a loss scaler skips it when a gradient overflows.
    """

    loss: float
    tokens: int
    norm: float
    made: bool = True


def train_step(
    model: MeshModel,
    micro_batches: Sequence[Batch],
    optimizers: Optimizers,
    max_norm: float = float("inf"),
    scaler: DynamicLossScaler | None = None,
) -> StepReport:
    """Makes the update that one process would make of the whole batch; collective.

    Args:
        model: from `lay_out`.
        micro_batches: this rank's, as `own_micro_batches` cuts them.
        optimizers: from `make_optimizers`.
        max_norm: clip to this norm.
        scaler: of all ranks of the mesh, for fp16.

    Raises:
        CommError: no token counts in the whole batch.
        ScheduleError: not as many micro-batches as the schedule has.
    """
    for optimizer in optimizers:
        optimizer.zero_grad()
    tokens = global_tokens(micro_batches, model.data)
    scale = 1.0 if scaler is None else scaler.factor
    # Gradients are averaged over the data ranks, so each rank's sum is made that much larger.
    weights = [scale * model.data.size / tokens] * len(micro_batches)
    model.weigh_side_losses(scale)
    losses = model.pipeline.step(micro_batches, weights)
    loss = global_loss(losses, tokens, model.mesh)
    held = finalize_grads(model, optimizers)
    made = scaler is None or not scaler.unscale(held)
    norm = clip_grad_norm_nd(held, held.__getitem__, model.everyone, max_norm)
    for optimizer in optimizers:
        optimizer.step() if scaler is None else scaler.step(optimizer)
    if scaler is not None:
        scaler.update()
    if made:
        for stage in model.pipeline.stages.values():
            update_router_bias(stage)
    return StepReport(_number(loss), tokens, _number(norm), made)


def _number(value: torch.Tensor) -> float:
    """The value; nan on a simulated cluster, whose tensors have no data."""
    return math.nan if value.is_meta else float(value)


# --- the batch -----------------------------------------------------------------------------------
def own_micro_batches(
    inputs_BT: torch.Tensor, targets_BT: torch.Tensor, model: MeshModel
) -> list[Batch]:
    """This rank's part of a batch that every rank has whole: rows by dp × ep, positions by cp.

    The batch is cut into micro-batches first. So micro-batch k has the same rows on every mesh, and
    so do experts' auxiliary losses, which are computed for one micro-batch over all its ranks.

    Args:
        inputs_BT: tokens, T as in the model's config; at least one row for each micro-batch.
        targets_BT: what follows each; -100 is not counted.
        model: for who has what, and the number of micro-batches.

    Raises:
        CommError: too few rows, another T, or targets of another shape.
    """
    rows = model.mesh["dp", "ep"]
    m = model.pipeline.schedule.micro_batches
    if inputs_BT.dim() != 2 or inputs_BT.shape != targets_BT.shape:
        raise CommError(
            "the parts of a batch on a mesh",
            f"inputs {tuple(inputs_BT.shape)}, targets {tuple(targets_BT.shape)}",
            "both are [B, T], with a target for each token",
        )
    if len(inputs_BT) < rows.size * m:
        raise CommError(
            f"{m} micro-batch{'es' * (m > 1)} for each of {rows.size} ranks (axis {rows.axis})",
            f"a batch of {len(inputs_BT)} rows",
            "every micro-batch needs at least one row: use fewer ranks, or a larger batch",
        )

    def own(whole_BT: torch.Tensor) -> list[torch.Tensor]:
        index = model.mesh["cp"].index
        mine_BT = shard_sequence(whole_BT, 1, model.tokens, index)
        return [part.tensor_split(rows.size)[rows.index] for part in mine_BT.tensor_split(m)]

    return list(zip(own(inputs_BT), own(targets_BT), strict=True))


def global_tokens(micro_batches: Sequence[Batch], data: Group) -> int:
    """Counted tokens of the whole batch: 8 bytes summed over dp × ep × cp.

    Ranks of tp and of pp have the same tokens, and are left out.

    Raises:
        CommError: there are none.
    """
    counted = torch.tensor(count_tokens(micro_batches, IGNORED), device=data.device)
    all_reduce(counted, data)
    if not counted:
        raise CommError(
            f"the mean loss of a batch over {data.size} ranks (axis {data.axis})",
            "no target that counts, on any of them",
            f"a mean over no token is 0/0; targets of {IGNORED} do not count",
        )
    return int(counted)


def global_loss(losses: Sequence[torch.Tensor], tokens: int, mesh: Mesh) -> torch.Tensor:
    """The whole batch's loss, told to all: 8 bytes summed over all axes but tp.

    Args:
        losses: sums over this rank's micro-batches, on the last stage; none on other stages, so the
            sum over pp only tells them the loss.
        tokens: of the whole batch.
        mesh: ranks that differ in tp alone have the same losses.

    Returns:
        Nats per token, float64.
    """
    group = mesh["pp", "dp", "ep", "cp"]
    total = torch.zeros((), dtype=torch.float64, device=group.device)
    for loss in losses:
        total += loss.to(total)
    all_reduce(total, group)
    return total / tokens


# --- gradients -----------------------------------------------------------------------------------
@torch.no_grad()
def finalize_grads(model: MeshModel, optimizers: Optimizers) -> dict[nn.Parameter, int]:
    """Turns what the backwards have left on each rank into gradients of the whole batch's loss.

        parameter                             over          what   by
        a norm's, with sequence parallelism   tp            sum    a hook, in backward
        a head that several ranks have        those of tp   sum    a hook, in backward
        an embedding that is tied             ends of pp    sum    this, first
        an expert's                           dp × cp       mean   this, or ZeRO-1
        any other                             dp × ep × cp  mean   this, or ZeRO-1

    ZeRO-2 and FSDP have done the last two in backward. The ends of pp are summed first, while both
    have the whole: ZeRO-1 cuts each at other places.

    Args:
        model: after the backwards of a batch.
        optimizers: from `make_optimizers`.

    Returns:
        What the optimizers will update, parameters or pieces of them, and how many ranks have the
        same, for the norm.
    """
    if model.tied is not None:
        sum_tied_gradient(*model.tied)
    sharded = [optimizer for optimizer in optimizers if isinstance(optimizer, ShardedOptimizer)]
    if sharded:
        return {piece: n for optimizer in sharded for piece, n in _reduced(optimizer, model)}
    if model.zero != 3:
        for replicas, parameters in model.by_replicas():
            average_over_replicas(parameters, replicas)
    return {parameter: model.copies(parameter) for parameter in model.parameters}


def _reduced(optimizer: ShardedOptimizer, model: MeshModel) -> list[tuple[nn.Parameter, int]]:
    """The pieces of ZeRO-1 or 2 with their averages; each is on one of the replicas."""
    if isinstance(optimizer, Zero1):
        optimizer.reduce_gradients()
    found = []
    for bucket in optimizer.buckets:
        for piece, place in zip(bucket.pieces, bucket.places, strict=True):
            whole = bucket.parameters[place.parameter]
            found.append((piece, model.copies(whole) // model.replicas(whole).size))
    return found
