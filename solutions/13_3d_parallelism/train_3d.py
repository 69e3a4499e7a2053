"""3D training put together: one model on a grid of pipeline × data × tensor parallel ranks.

Notebook 13. Eight ranks as 2 × 2 × 2. Along `tp` the ranks share every matrix, along `pp` they have
different blocks, along `dp` they have the same parameters and different rows of the batch:

                     pp 0: the first blocks          pp 1: the other blocks
                     tp 0       tp 1                 tp 0       tp 1
    dp 0, its rows   rank 0     rank 1               rank 4     rank 5
    dp 1, its rows   rank 2     rank 3               rank 6     rank 7

You have built or seen every piece by now. It is easy to communicate with the wrong ranks: nothing
crashes, and the loss still falls. You write all of it, from the mesh to the update. Afterwards each
rank's part of the model has the weights that one process would have after the same steps on the
whole batches.

Rules
- Ranks that differ only in `tp` or `pp` work on the same rows: those of their place on `dp`.
  `read(step, index, count)` returns part `index` of `count` equal parts of a step's batch, already
  cut into micro-batches. Read your part once per step.
- The loss of a step is the mean over all counted tokens of the *whole* batch (targets of `IGNORED`
  are not counted). Ranks and micro-batches have different numbers of them, and some have none, so a
  mean of means is wrong. The pipeline computes *sums*, and you weigh them.
- Return this loss for each step, as floats, the same on all ranks. Only the last stage has losses,
  and its ranks on one `tp` line all have the same ones. Sum in float64.
- Each gradient must be that of this loss before it is clipped or used: the pipeline's `step` leaves
  only the part from this rank's rows. Reduce this rank's gradients over `dp` once per step, and
  over no other axis.
- Clip to `max_norm` with the norm of the whole model's gradient, of which each rank has a part.
- A step's gradients must not contain those of earlier steps.
- The axes may have any sizes, including 1. Embedding and output layer are not tied.

You may use
- `Mesh(world, sizes)`: `mesh["dp"]` is this rank's group on an axis, `mesh["pp", "dp"]` on two.
  When a group on several axes is asked for the first time, all ranks must ask for it.
- `tensor_parallel(model, group)` cuts a model's matrices by rows or columns, in place, so the model
  gets new parameters. The norms' weights, the only vectors, stay whole on all ranks of `tp`, which
  have the same gradients for them.
- `one_f_one_b(ranks, m)`, a schedule; `pipeline_stages(model, schedule, group)`, which returns this
  rank's stages as a dict of modules; apply tensor parallelism first.
- `make_pipeline`, below, with these stages. Its `step(micro_batches, weights)` runs forwards and
  backwards, adds to the gradients those of the micro-batches' losses times their weights, and
  returns the losses without weights; an empty list if the last stage is on another rank.
- `clip_grad_norm_nd(parameters, copies, group, max_norm)`: `copies(parameter)` says how many ranks
  of the group have the same part of a parameter, so that each part counts once.
- `all_reduce(tensor, group)`, which works in place.

You may not use `lay_out`, `train_step` and `MeshModel`: they are the answer.
"""

from collections.abc import Callable, Mapping

import torch
from torch import nn

from course_lib.comm import Group, Mesh, all_reduce
from course_lib.model import ModelConfig, Transformer
from course_lib.parallel import Pipeline, vocab_parallel_cross_entropy
from course_lib.schedule import Schedule, one_f_one_b
from course_lib.train import clip_grad_norm_nd, pipeline_stages, tensor_parallel

IGNORED = -100  # a target that is not counted
Batch = tuple[torch.Tensor, torch.Tensor]  # inputs and targets, int64 [B, T]


def make_pipeline(
    stages: Mapping[int, nn.Module],
    schedule: Schedule,
    pp: Group,
    tp: Group,
    config: ModelConfig,
) -> Pipeline:
    """Runs this rank's stages; its losses are *sums* over the counted tokens of a micro-batch."""

    def loss(logits: torch.Tensor, targets_BT: torch.Tensor) -> torch.Tensor:  # mutate: same
        losses_BT = vocab_parallel_cross_entropy(logits, targets_BT, config.vocabulary, tp)
        return losses_BT.masked_fill(targets_BT == IGNORED, 0).sum()

    def border(inputs_BT: torch.Tensor) -> torch.Tensor:
        return torch.empty(*inputs_BT.shape, config.hidden, dtype=torch.float64)

    return Pipeline(stages, schedule, pp, loss=loss, border=border)


def train_3d(
    model: Transformer,
    world: Group,
    sizes: Mapping[str, int],
    read: Callable[[int, int, int], list[Batch]],
    make_optimizer: Callable[[list[nn.Parameter]], torch.optim.Optimizer],
    *,
    steps: int,
    micro_batches: int,
    max_norm: float,
) -> list[float]:
    """Trains a model on a mesh; collective over the world.

    Args:
        model: the whole model, the same on every rank, in float64; it is cut and trained in place.
        world: all ranks.
        sizes: those of the axes `pp`, `dp` and `tp`, in this order; their product is the world's
            size.
        read: `read(step, index, count)` returns a list of micro-batches.
        make_optimizer: makes an optimizer for this rank's parameters.
        steps: the number of steps; they count from 0.
        micro_batches: the length of each list that `read` returns.
        max_norm: the largest norm allowed for the whole gradient; `inf` means no clipping.

    Returns:
        The loss of each step, before its update.
    """
    # BEGIN SOLUTION: the mesh, the model on it, the steps
    mesh = Mesh(world, sizes)
    pp, dp, tp, rows = mesh["pp"], mesh["dp"], mesh["tp"], mesh["pp", "dp"]
    schedule = one_f_one_b(pp.size, micro_batches)  # mutate: same
    tensor_parallel(model, tp)
    stages = pipeline_stages(model, schedule, pp)
    pipeline = make_pipeline(stages, schedule, pp, tp, model.config)  # mutate: same
    parameters = [p for stage in stages.values() for p in stage.parameters()]
    optimizer, losses = make_optimizer(parameters), []  # mutate: same
    copies = {p: dp.size * (tp.size if p.dim() == 1 else 1) for p in parameters}
    for step in range(steps):
        optimizer.zero_grad()  # mutate: same
        batches = read(step, dp.index, dp.size)
        tokens = torch.stack([(targets != IGNORED).sum() for _, targets in batches]).sum()
        all_reduce(tokens, dp)
        sums = pipeline.step(batches, [1 / int(tokens)] * micro_batches)
        for parameter in parameters:  # mutate: same
            all_reduce(parameter.grad, dp)
        total = torch.zeros((), dtype=torch.float64) + sum(sums)
        all_reduce(total, rows)
        losses.append(float(total) / int(tokens))  # mutate: same
        clip_grad_norm_nd(parameters, copies.__getitem__, world, max_norm)
        optimizer.step()
    return losses
    # END SOLUTION
