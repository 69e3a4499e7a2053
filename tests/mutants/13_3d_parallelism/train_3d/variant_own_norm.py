"""variant: GPipe, and a norm added up axis by axis"""

from collections.abc import Callable, Mapping

import torch
from torch import nn

from course_lib.comm import Group, Mesh, all_reduce
from course_lib.model import ModelConfig, Transformer
from course_lib.parallel import Pipeline
from course_lib.parallel.schedule import Schedule, gpipe
from course_lib.parallel.vocab_parallel import vocab_parallel_cross_entropy
from course_lib.train import pipeline_stages, tensor_parallel

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
    schedule = gpipe(pp.size, micro_batches)
    tensor_parallel(model, tp)
    stages = pipeline_stages(model, schedule, pp)
    pipeline = make_pipeline(stages, schedule, pp, tp, model.config)
    parameters = [p for stage in stages.values() for p in stage.parameters()]
    optimizer, losses = make_optimizer(parameters), []
    for step in range(steps):
        optimizer.zero_grad()
        batches = read(step, dp.index, dp.size)
        tokens = torch.stack([(targets != IGNORED).sum() for _, targets in batches]).sum()
        all_reduce(tokens, dp)
        sums = pipeline.step(batches, [1 / int(tokens)] * micro_batches)
        for parameter in parameters:
            all_reduce(parameter.grad, dp)
        total = torch.zeros((), dtype=torch.float64) + sum(sums)
        all_reduce(total, rows)
        losses.append(float(total) / int(tokens))
        squares = torch.zeros((), dtype=torch.float64)
        for p in parameters:
            squares += p.grad.square().sum() / (tp.size if p.dim() == 1 else 1)
        all_reduce(squares, tp)
        all_reduce(squares, pp)
        for p in parameters:
            p.grad *= min(1.0, max_norm / (float(squares) ** 0.5 + 1e-6))
        optimizer.step()
    return losses
