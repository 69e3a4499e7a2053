"""mutant: a gradient is None"""

from collections.abc import Callable, Sequence

import torch
from torch import nn

from course_lib.comm import Group, isend, recv


def kind_and_micro(action: str) -> tuple[str, int]:
    """`2F10` is ("F", 10), `2B10` is ("B", 10); the stage is this rank's own."""
    kind = "F" if "F" in action else "B"
    return kind, int(action.partition(kind)[2])


def received(like: torch.Tensor, source: int, group: Group) -> torch.Tensor:
    """A new tensor like `like`, with what index `source` has sent. Use it or not."""
    buffer = torch.empty_like(like)
    recv(buffer, source, group)
    return buffer


def execute(
    actions: Sequence[str],
    stage: nn.Module,
    micro_batches: Sequence[tuple[torch.Tensor, torch.Tensor]],
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    like: torch.Tensor,
    group: Group,
) -> list[torch.Tensor]:
    first, last = group.index == 0, group.index == group.size - 1
    kept, sending, losses = {}, [], []
    for kind, k in map(kind_and_micro, actions):
        inputs, targets = micro_batches[k]
        if kind == "F":
            if not first:
                inputs = received(like, group.index - 1, group)
            outputs = stage(inputs)
            if last:
                outputs = loss(outputs, targets)
                losses.append(outputs.detach())
                outputs = outputs / len(micro_batches)
            else:
                sending.append(isend(outputs.detach(), group.index + 1, group))
            kept[k] = inputs, outputs
        else:
            inputs, outputs = kept.pop(k)
            gradient = None if last else received(like, group.index + 1, group)
            outputs.backward(gradient)
            if not first:
                sending.append(isend(inputs.grad, group.index - 1, group))
    for work in sending:
        work.wait()
    return losses
