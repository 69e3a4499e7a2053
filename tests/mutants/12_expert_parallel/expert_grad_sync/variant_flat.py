"""variant: one message for each group, new tensors as gradients"""

from collections.abc import Iterable

import torch
from torch import nn

from course_lib.comm import Group, all_reduce


def expert_grad_sync(
    experts: Iterable[nn.Parameter], others: Iterable[nn.Parameter], replicas: Group, world: Group
) -> None:
    for parameters, group in ((experts, replicas), (others, world)):
        own = [parameter for parameter in parameters if parameter.requires_grad]
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in own]
        flat = torch.cat([gradient.flatten() for gradient in grads]) / world.size
        all_reduce(flat, group)
        for parameter, part in zip(own, flat.split([p.numel() for p in own]), strict=True):
            parameter.grad = part.view_as(parameter)
