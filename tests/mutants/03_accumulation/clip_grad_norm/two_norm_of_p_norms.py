"""mutant: 1-norm, max_norm 0.05"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext

import torch
from torch import nn


def clip_grad_norm(
    parameters: Iterable[nn.Parameter], max_norm: float, norm_type: float = 2.0
) -> torch.Tensor:
    """Makes the gradients shorter, in place, if their norm is above `max_norm`.

    Args:
        parameters: some may have no gradient.
        max_norm: the norm that is allowed for all gradients together.
        norm_type: 2.0, another p of the p-norm, or infinity for the largest absolute value.

    Returns:
        The norm before, a scalar tensor.
    """
    gradients = [p.grad for p in parameters if p.grad is not None]
    norms = [torch.linalg.vector_norm(gradient, norm_type) for gradient in gradients]
    norm = torch.linalg.vector_norm(torch.stack(norms))
    factor = min(1.0, max_norm / (float(norm) + 1e-6))
    for gradient in gradients:
        gradient.mul_(factor)
    return norm


def update(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loss_fn: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    window: Sequence[tuple[torch.Tensor, torch.Tensor]],
    max_norm: float,
    scale: float,
) -> torch.Tensor:
    """One update: the window's micro-batches, unscale, clip, step.

    Args:
        model: averages gradients, has `no_sync()`.
        optimizer: of its parameters.
        loss_fn: outputs and targets of a micro-batch to its mean loss.
        window: (inputs, targets) of each micro-batch, all of one size.
        max_norm: the norm that is allowed.
        scale: what losses are multiplied by before their backward.

    Returns:
        The norm of the update's unscaled gradient before clipping; the same on every rank.
    """
    optimizer.zero_grad()
    for number, (inputs, targets) in enumerate(window, 1):
        with nullcontext() if number == len(window) else model.no_sync():
            loss = loss_fn(model(inputs), targets) / len(window)
            (loss * scale).backward()
    for parameter in model.parameters():
        if parameter.grad is not None:
            parameter.grad.div_(scale)
    norm = clip_grad_norm(model.parameters(), max_norm)
    optimizer.step()
    return norm
