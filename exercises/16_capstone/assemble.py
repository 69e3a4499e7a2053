"""The capstone, first part: a mixture of experts, trained on a mesh of four axes.

Notebook 16. You are given a model, a number of ranks, and a layout that somebody else has drawn:
the sizes of the axes `pp`, `dp`, `ep` and `tp`, whose product is the number of ranks. Put together
from the parts of this course a `Trainer` that makes the same steps as one process would: the same
losses, the same norms, the same weights. At the same time it must fit: each rank keeps its part of
the model, a part of the optimizer's state, and sends no more than it has to.

    axis     ranks that differ in it alone have           and so
    pp       other blocks of the model                    hand on activations and their gradients
    dp       the same parameters, other rows              average their gradients
    ep       other experts and other rows, all else the   send tokens to the experts, and average
             same                                         the gradients of all that is no expert
    tp       other rows or columns of each matrix         add up what each computes

Rules
- `step` gets the whole batch on every rank. It is cut into micro-batches first, and each of these
  over the ranks of dp × ep, both times with `tensor_split`: the parts may be of unequal size. So
  micro-batch k has the same rows in every layout.
- The loss is the mean over all counted tokens of the whole batch (a target of `IGNORED` is not
  counted). Ranks and micro-batches have different numbers of them: weigh sums, not means.
- What is trained is this loss plus the mean over the micro-batches of the experts' auxiliary losses
  (balance and router z-loss). A stage adds those of its own blocks in backward by itself, with the
  weight that is written to its attribute `auxiliary_weight`, 1 at first. Of each micro-batch a rank
  has its own part, and the mean over the ranks of dp × ep is the micro-batch's.
- Optimizer state is cut by ZeRO-1 over the ranks that have the same parameter and other rows. An
  expert has fewer of those than everything else: two optimizers.
- Gradients are averaged over these ranks once a step. The gradient that leaves an expert in
  backward is the mean over the ranks of ep already.
- Before the update all gradients are scaled down together, if the norm of the *whole* model's
  gradient is above `max_norm`. Each element of the model counts once.
- A tied embedding is on two ranks if there are two or more stages: both have a part of its gradient
  and need the sum, before it is cut.
- After the update `update_router_bias(module)` moves the biases of the routers in a module.
- Any sizes: each axis may be 1, and none need be 2. Experts need not divide by the ranks of ep.
- Keep no more than your part: what is bound to the `Trainer` is measured after a step.

Free to use
- `Mesh(world, sizes)`: `mesh["dp"]` is this rank's group on an axis, `mesh["dp", "ep"]` on two. The
  first time that a group is asked for, all ranks must come by.
- `tensor_parallel(model, group)`, then `expert_parallel(model, group, tokens)`, with `tokens` the
  ranks that have other rows; both cut a model in place. Then `pipeline_stages(model, schedule,
  group)`, this rank's stages as a dict of modules. `one_f_one_b(ranks, m)` is a schedule.
- `make_pipeline`, below, with these stages. Its `step(batches, weights)` runs forwards and
  backwards, adds to the gradients those of the micro-batches' losses times their weights, and
  returns the losses without weights; an empty list if the last stage is on another rank.
- `expert_parameters(module)`: the experts' parameters; routers are none.
- `Zero1(parameters, AdamW, group, lr=...)`, with `reduce_gradients` (averages over the group and
  cuts) and `step` (updates, gathers the parameters, and leaves no gradients). `own_pieces`, below,
  lists what it has left this rank of each parameter.
- `tensor_copies(module, config, tp)`: how many ranks of tp have the same of a parameter, as a dict.
- `clip_grad_norm_nd(pieces, copies, world, max_norm)`: scales down, and returns the norm before it;
  `copies(piece)` says how many ranks of the world have the same piece.
- `tied_pair(schedule, pp)`: the group of the first and the last stage, or None on other ranks, and
  if both are here. `sum_tied_gradient(weight, pair)`.
- `all_reduce(tensor, group)` works in place. Not `lay_out`, `MeshModel`, `train_step` and `Run`:
  they are the answer.
"""

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
        raise NotImplementedError("assemble: Trainer.__init__")

    def step(self, inputs: torch.Tensor, targets: torch.Tensor) -> tuple[float, int, float]:
        """Makes the update that one process would make.

        Args:
            inputs: of the whole batch, int64 [B, T], the same on every rank.
            targets: the same shape; `IGNORED` is not counted.

        Returns:
            The loss before the update, without auxiliary losses; the counted tokens of the whole
            batch; the norm of the gradient before clipping. The same on every rank.
        """

        raise NotImplementedError("assemble: Trainer.step")
