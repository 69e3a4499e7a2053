"""variant: all receives are started at the beginning, and a hook sends the gradient"""

from collections.abc import Callable, Sequence

import torch
from torch import nn

from course_lib.comm import Group, irecv, isend


def gpipe_step(
    stage: nn.Module,
    micro_batches: Sequence[tuple[torch.Tensor, torch.Tensor]],
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    like: torch.Tensor,
    group: Group,
) -> list[torch.Tensor]:
    first, last = group.index == 0, group.index == group.size - 1
    kept, losses, sending = [], [], []
    before = [torch.empty_like(like) for _ in micro_batches]
    behind = [torch.empty_like(like) for _ in micro_batches]
    if not first:
        ahead = [irecv(x, group.index - 1, group) for x in before]
    if not last:
        back = [irecv(g, group.index + 1, group) for g in behind]
    for k, (inputs, targets) in enumerate(micro_batches):
        if not first:
            ahead[k].wait()
            inputs = before[k].requires_grad_()
            inputs.register_hook(
                lambda g: sending.append(isend(g.contiguous(), group.index - 1, group))
            )
        outputs = stage(inputs)
        if last:
            outputs = loss(outputs, targets)
            losses.append(outputs.detach())
            outputs = outputs / len(micro_batches)
        else:
            sending.append(isend(outputs.detach(), group.index + 1, group))
        kept.append(outputs)
    for k, outputs in enumerate(kept):
        gradient = None
        if not last:
            back[k].wait()
            gradient = behind[k]
        outputs.backward(gradient)
    for work in sending:
        work.wait()
    return losses
