"""mutant: a mean of means"""

from collections.abc import Callable, Mapping

import torch
from torch import nn

from course_lib.comm import Group, Mesh, all_reduce
from course_lib.model import ModelConfig, Transformer
from course_lib.parallel import Pipeline
from course_lib.parallel.schedule import Schedule, one_f_one_b
from course_lib.parallel.vocab_parallel import vocab_parallel_cross_entropy
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

    def loss(logits: torch.Tensor, targets_BT: torch.Tensor) -> torch.Tensor:
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
        model: the whole, the same on every rank, float64; cut and trained in place.
        world: all ranks.
        sizes: of the axes `pp`, `dp` and `tp`, in this order; their product is the world's size.
        read: `read(step, index, count)` returns a list of micro-batches.
        make_optimizer: makes an optimizer for this rank's parameters.
        steps: 0, 1, ..., steps - 1.
        micro_batches: in each list that `read` returns.
        max_norm: of the whole gradient; `inf` does not clip.

    Returns:
        The loss of each step, before its update.
    """
    mesh = Mesh(world, sizes)
    pp, dp, tp, rows = mesh["pp"], mesh["dp"], mesh["tp"], mesh["pp", "dp"]
    schedule = one_f_one_b(pp.size, micro_batches)
    tensor_parallel(model, tp)
    stages = pipeline_stages(model, schedule, pp)
    pipeline = make_pipeline(stages, schedule, pp, tp, model.config)
    parameters = [p for stage in stages.values() for p in stage.parameters()]
    optimizer, losses = make_optimizer(parameters), []
    copies = {p: dp.size * (tp.size if p.dim() == 1 else 1) for p in parameters}
    for step in range(steps):
        optimizer.zero_grad()
        batches = read(step, dp.index, dp.size)
        tokens = torch.stack([(targets != IGNORED).sum() for _, targets in batches]).sum()
        sums = pipeline.step(batches, [1 / int(tokens)] * micro_batches)
        for parameter in parameters:
            all_reduce(parameter.grad, dp, "avg")
        total = torch.zeros((), dtype=torch.float64) + sum(sums)
        all_reduce(total, rows)
        losses.append(float(total) / int(tokens))
        clip_grad_norm_nd(parameters, copies.__getitem__, world, max_norm)
        optimizer.step()
    return losses
