"""mutant: float32"""

from collections.abc import Callable, Sequence

import torch
from torch import nn

from course_lib.comm import Group, recv, send


def received(like: torch.Tensor, source: int, group: Group) -> torch.Tensor:
    """A new tensor like `like`, with what index `source` has sent. Use it or not."""
    buffer = torch.empty_like(like)
    recv(buffer, source, group)
    return buffer


def gpipe_step(
    stage: nn.Module,
    micro_batches: Sequence[tuple[torch.Tensor, torch.Tensor]],
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    like: torch.Tensor,
    group: Group,
) -> list[torch.Tensor]:
    first, last = group.index == 0, group.index == group.size - 1
    kept, losses = [], []
    for inputs, targets in micro_batches:
        if not first:
            buffer = torch.empty_like(like, dtype=torch.float32)
            recv(buffer, group.index - 1, group)
            inputs = buffer.double().requires_grad_()
        outputs = stage(inputs)
        if last:
            outputs = loss(outputs, targets)
            losses.append(outputs.detach())
            outputs = outputs / len(micro_batches)
        else:
            send(outputs.detach().float(), group.index + 1, group)
        kept.append((inputs, outputs))
    for inputs, outputs in kept:
        gradient = None if last else received(like, group.index + 1, group)
        outputs.backward(gradient)
        if not first:
            send(inputs.grad, group.index - 1, group)
    return losses
