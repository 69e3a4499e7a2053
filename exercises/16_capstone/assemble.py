"""The capstone, first part: train a mixture of experts on a mesh of four axes.

Notebook 16, sections 3 to 6. You are given a model, a number of ranks, and a layout: the sizes of
the axes `pp`, `dp`, `ep` and `tp`, any of which may be 1. Write a `Trainer` that takes the same
steps on any layout as one process would. How you do it is up to you. The parts from earlier lessons
are imported below, and the table in section 5 says what each does. You may not use `lay_out`,
`MeshModel`, `train_step` and `Run`: they are the answer.

What one process does in a step
- It cuts the batch into micro-batches with `tensor_split`: the parts may have unequal sizes.
- The loss is the mean over all counted tokens of the whole batch (a target of `IGNORED` is not
  counted). The gradient is that of this loss plus the mean over the micro-batches of the auxiliary
  losses of all blocks (balance and router z-loss), each computed from its whole micro-batch.
- It clips the norm of all gradients to `max_norm`, updates with AdamW, and then moves the routers'
  biases with `update_router_bias`.

What is measured, on hidden layouts
- Loss, tokens and norm of each step, and the weights after three steps: those of one process, up to
  rounding.
- Bytes that a rank sends in a step, on each axis: at most those of the formulas in section 6, where
  `tensor_split` divides a micro-batch's rows over dp × ep. Gradients are sent once per step.
- Bytes that a `Trainer` refers to after a step: at most its part of the weights, and its share of
  AdamW's state, which is divided among the ranks that have the same weight and different rows.
- A new `Trainer` that has loaded an older one's state takes the next steps as one process would.
  The state consists of tensors, numbers and names, is no larger than the bytes above, and does not
  change while the old `Trainer` goes on.

Your answer may use `comm`, `model`, `schedule`, `parallel.Pipeline`,
`parallel.average_over_replicas`, `parallel.Zero1`, `parallel.sum_tied_gradient`,
`parallel.vocab_parallel_cross_entropy`, `train.clip_grad_norm_nd`, `train.expert_parallel`,
`train.pipeline_stages`, `train.tensor_copies`, `train.tensor_parallel` and `train.tied_pair` of
`course_lib`.
"""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import torch
from torch import nn

from course_lib.comm import Group, Mesh, all_reduce
from course_lib.model import (
    AdamW,
    ModelConfig,
    Transformer,
    expert_parameters,
    update_router_bias,
)
from course_lib.parallel import Pipeline, Zero1, sum_tied_gradient, vocab_parallel_cross_entropy
from course_lib.schedule import Schedule, one_f_one_b
from course_lib.train import (
    clip_grad_norm_nd,
    expert_parallel,
    pipeline_stages,
    tensor_copies,
    tensor_parallel,
    tied_pair,
)

IGNORED = -100  # a target that is not counted


def make_pipeline(
    stages: Mapping[int, nn.Module],
    schedule: Schedule,
    pp: Group,
    tp: Group,
    config: ModelConfig,
) -> Pipeline:
    """Runs this rank's stages; its losses are *sums* over the counted tokens of a micro-batch."""

    def loss(logits: torch.Tensor, targets_BT: torch.Tensor) -> torch.Tensor:
        losses_BT = vocab_parallel_cross_entropy(logits, targets_BT, config.vocabulary, tp)
        return losses_BT.masked_fill(targets_BT == IGNORED, 0).sum()

    def border(inputs_BT: torch.Tensor) -> torch.Tensor:
        return torch.empty(*inputs_BT.shape, config.hidden, dtype=torch.float64)

    return Pipeline(stages, schedule, pp, loss=loss, border=border)


def own_pieces(optimizer: Zero1) -> list[tuple[nn.Parameter, nn.Parameter]]:
    """Returns pairs of a piece, which this rank updates, and the parameter that it belongs to.

    After `reduce_gradients` a piece has its gradient. Each piece of a parameter is on one of the
    ranks of the optimizer's group.
    """
    return [
        (piece, bucket.parameters[place.parameter])
        for bucket in optimizer.buckets
        for piece, place in zip(bucket.pieces, bucket.places, strict=True)
    ]


class Trainer:
    """Trains a model on a mesh; its construction and its steps are collective over the world.

    Args:
        model: the whole model with experts, the same on every rank, in float64; it is cut and
            trained in place.
        world: all ranks.
        sizes: of the axes `pp`, `dp`, `ep` and `tp`, in this order; their product is the world's
            size.
        micro_batches: number of micro-batches in a step.
        lr: the learning rate of AdamW, whose other options keep their defaults.
        max_norm: the norm to which gradients are clipped; `inf` means no clipping.
    """

    def __init__(
        self,
        model: Transformer,
        world: Group,
        sizes: Mapping[str, int],
        *,
        micro_batches: int,
        lr: float,
        max_norm: float,
    ) -> None:
        raise NotImplementedError("assemble: Trainer.__init__")

    def step(self, inputs: torch.Tensor, targets: torch.Tensor) -> tuple[float, int, float]:
        """Takes the step that one process would take.

        Args:
            inputs: the whole batch's, int64 [B, T], the same on every rank.
            targets: the same shape; `IGNORED` is not counted.

        Returns:
            The loss before the update, without auxiliary losses; the counted tokens of the whole
            batch; the norm of the gradient before clipping. The same on every rank.
        """

        raise NotImplementedError("assemble: Trainer.step")

    def state(self) -> dict[str, Any]:
        """Returns what this rank needs to continue in another process, as tensors and numbers."""
        raise NotImplementedError("assemble: Trainer.state")

    def load(self, state: dict[str, Any]) -> None:
        """Continues from the `state` of the same rank on the same layout."""
        raise NotImplementedError("assemble: Trainer.load")
