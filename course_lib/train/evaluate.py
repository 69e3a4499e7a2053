"""The loss of other text: forward alone, stage after stage.

Notebook: 13 3D parallelism.
Source: Megatron-LM's evaluate, which runs its pipeline forward only.
Costs forward what a step costs forward; one micro-batch at a time is in the pipeline.
The production version keeps the pipeline full.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from course_lib.comm import recv, send
from course_lib.parallel.data.accumulate import Batch
from course_lib.train.mesh_model import MeshModel
from course_lib.train.step import global_loss, global_tokens


@torch.no_grad()
def evaluate(model: MeshModel, micro_batches: Sequence[Batch]) -> float:
    """The mean loss of a batch, in nats per counted token; the same on every rank. Collective.

    Args:
        model: between two steps.
        micro_batches: this rank's, as `own_micro_batches` cuts them.

    Raises:
        CommError: no token counts in the whole batch.
    """
    tokens = global_tokens(micro_batches, model.data)
    with _not_training(model):
        losses = [loss for batch in micro_batches for loss in _through_the_stages(model, *batch)]
    return float(global_loss(losses, tokens, model.mesh))


def _through_the_stages(
    model: MeshModel, inputs_BT: torch.Tensor, targets_BT: torch.Tensor
) -> Iterator[torch.Tensor]:
    """The summed loss of a micro-batch, on the rank of the last stage; nothing elsewhere."""
    pipe = model.pipeline
    place, x = pipe.schedule.placement, inputs_BT
    for stage, owner in enumerate(place):
        if pipe.group.index != owner:
            continue
        if stage and place[stage - 1] != owner:
            x = model.handed_on(inputs_BT)
            recv(x, place[stage - 1], pipe.group)
        x = pipe.stages[stage](x, *model.beside(inputs_BT, targets_BT))
        if stage + 1 == len(place):
            yield model.loss_sum(x, targets_BT)
        elif place[stage + 1] != owner:
            send(x.contiguous(), place[stage + 1], pipe.group)


@contextmanager
def _not_training(model: MeshModel) -> Iterator[None]:
    """Routers count nothing, and have no losses of their own; afterwards all is as it was."""
    stages = model.pipeline.stages.values()
    before = {module: module.training for stage in stages for module in stage.modules()}
    for stage in stages:
        stage.eval()
    try:
        yield
    finally:
        for module, training in before.items():
            module.training = training
