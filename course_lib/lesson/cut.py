"""The same training with whole matrices and with matrices cut over N ranks, in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from course_lib.comm import Group
from course_lib.lesson.gap import largest_gap, largest_over
from course_lib.lesson.prove import RATE, Gap, Proof
from course_lib.model import ModelConfig, Transformer, cross_entropy

SEQUENCES = 3
Tensors = list[torch.Tensor]
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def prove_cut(
    configs: Mapping[str, ModelConfig],
    group: Group,
    *,
    cut: Callable[[Transformer, Group], None],
    loss: Callable[..., torch.Tensor],
    optimizers: Sequence[str] = ("SGD", "AdamW"),
    steps: int = 4,
) -> Proof:
    """Trains each model cut over the ranks, and whole, on the same batches.

    A rank's part is compared with the same part of the whole. To find that part, a model that has
    the whole gradients (or the trained weights) as its weights is cut like the first. Collective.

    Args:
        configs: name to the model's sizes.
        group: the ranks that share every layer; all of them see the same tokens.
        cut: `cut(model, group)` keeps this rank's part of each parameter, in place.
        loss: `loss(logits, targets, group)`, the mean loss from what a cut model returns.
        optimizers: names of classes in `torch.optim`.
        steps: how many updates are made.

    Returns:
        The gaps, the largest over the ranks.
    """
    gaps = {}
    for name, config in configs.items():
        for optimizer in optimizers:
            make = partial(getattr(torch.optim, optimizer), lr=RATE)
            alone, ours = Transformer(config).double(), Transformer(config).double()
            start = _parts(ours.parameters(), config, cut, group)
            cut(ours, group)
            whole = _train(alone, cross_entropy, make, steps)
            found = _train(ours, partial(loss, group=group), make, steps)
            gradients = _parts(whole, config, cut, group)
            weights = _parts(alone.parameters(), config, cut, group)
            gaps[name, optimizer] = Gap(
                largest_gap(found, gradients, group),
                _off_the_way([p.detach() for p in ours.parameters()], weights, start, group),
            )
    return Proof(gaps, steps)


def _train(model: Transformer, loss: Loss, make: Any, steps: int) -> Tensors:
    """The gradients before the first step; the weights are the last ones then."""
    config, optimizer, first = model.config, make(model.parameters()), []
    for step in range(steps):
        generator = torch.Generator().manual_seed(step)
        shape = (SEQUENCES, config.sequence + 1)
        both = torch.randint(0, config.vocabulary, shape, generator=generator)
        optimizer.zero_grad()
        loss(model(both[:, :-1]), both[:, 1:]).backward()
        if step == 0:
            first = [p.grad.clone() for p in model.parameters() if p.grad is not None]
        optimizer.step()
    return first


@torch.no_grad()
def _parts(whole: Any, config: ModelConfig, cut: Any, group: Group) -> Tensors:
    """This rank's parts of tensors that are shaped like a whole model's parameters."""
    model = Transformer(config).double()
    for parameter, tensor in zip(model.parameters(), whole, strict=True):
        parameter.copy_(tensor)
    cut(model, group)
    return [parameter.detach() for parameter in model.parameters()]


def _off_the_way(found: Tensors, exact: Tensors, start: Tensors, group: Group) -> float:
    """The distance from where one process has gone, as a part of how far that was."""
    off, way = (
        torch.stack([(a - b).norm() for a, b in zip(ends, exact, strict=True)]).norm()
        for ends in (found, start)
    )
    return largest_over(group, off / way).item()
