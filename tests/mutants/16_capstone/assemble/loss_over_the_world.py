"""mutant: not to be summed over tp"""

from collections.abc import Mapping

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
from course_lib.parallel import Pipeline, Zero1, sum_tied_gradient
from course_lib.parallel.schedule import Schedule, one_f_one_b
from course_lib.parallel.vocab_parallel import vocab_parallel_cross_entropy
from course_lib.train import (
    clip_grad_norm_nd,
    expert_parallel,
    pipeline_stages,
    tensor_parallel,
)
from course_lib.train.copies import tensor_copies
from course_lib.train.stage import tied_pair

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
    """Pairs of a piece, which this rank updates, and the parameter that it is a piece of.

    After `reduce_gradients` a piece has its gradient. Each piece of a parameter is on one of the
    ranks of the optimizer's group.
    """
    return [
        (piece, bucket.parameters[place.parameter])
        for bucket in optimizer.buckets
        for piece, place in zip(bucket.pieces, bucket.places, strict=True)
    ]


class Trainer:
    """Trains a model on a mesh; making one is collective over the world, and so is a step.

    Args:
        model: the whole, the same on every rank, float64, with experts; cut and trained in place.
        world: all ranks.
        sizes: of the axes `pp`, `dp`, `ep` and `tp`, in this order; their product is the world's
            size.
        micro_batches: in a step.
        lr: of AdamW, whose other options stay as they are.
        max_norm: gradients are clipped to; `inf` does not clip.
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
        mesh = Mesh(world, sizes)
        tp, pp, self.rows = mesh["tp"], mesh["pp"], mesh["dp", "ep"]
        schedule = one_f_one_b(pp.size, micro_batches)
        tensor_parallel(model, tp)
        expert_parallel(model, mesh["ep"], self.rows)
        stages = pipeline_stages(model, schedule, pp)
        for stage in stages.values():
            stage.auxiliary_weight = 1 / micro_batches
        self.pipeline = make_pipeline(stages, schedule, pp, tp, model.config)
        self.held = nn.ModuleList(stages.values())
        experts = expert_parameters(self.held)
        others = [p for p in self.held.parameters() if all(p is not e for e in experts)]
        self.optimizers = [
            Zero1(others, AdamW, self.rows, lr=lr),
            Zero1(experts, AdamW, mesh["dp"], lr=lr),
        ]
        copies, self.tied = tensor_copies(self.held, model.config, tp), None
        pair = tied_pair(schedule, pp) if model.config.tied else None
        if pair is not None:
            first = next(iter(stages.values()))
            end = first.head if first.embedding is None else first.embedding
            self.tied = end.weight, pair
            copies[end.weight] *= 2
        pieces = [pair for optimizer in self.optimizers for pair in own_pieces(optimizer)]
        self.copies = {piece: copies[whole] for piece, whole in pieces}
        self.everywhere, self.world = mesh["pp", "dp", "ep"], world
        self.micro_batches, self.max_norm = micro_batches, max_norm

    def step(self, inputs: torch.Tensor, targets: torch.Tensor) -> tuple[float, int, float]:
        """Makes the update that one process would make.

        Args:
            inputs: of the whole batch, int64 [B, T], the same on every rank.
            targets: the same shape; `IGNORED` is not counted.

        Returns:
            The loss before the update, without auxiliary losses; the counted tokens of the whole
            batch; the norm of the gradient before clipping. The same on every rank.
        """

        def own(whole: torch.Tensor) -> list[torch.Tensor]:
            parts = whole.tensor_split(self.micro_batches)
            return [part.tensor_split(self.rows.size)[self.rows.index] for part in parts]

        tokens = int((targets != IGNORED).sum())
        weights = [self.rows.size / tokens] * self.micro_batches
        batches = list(zip(own(inputs), own(targets), strict=True))
        losses = self.pipeline.step(batches, weights)
        loss = torch.zeros((), dtype=torch.float64) + sum(losses)
        all_reduce(loss, self.world)
        if self.tied is not None:
            sum_tied_gradient(*self.tied)
        for optimizer in self.optimizers:
            optimizer.reduce_gradients()
        norm = clip_grad_norm_nd(self.copies, self.copies.get, self.world, self.max_norm)
        for optimizer in self.optimizers:
            optimizer.step()
        update_router_bias(self.held)
        return float(loss) / tokens, tokens, float(norm)
