"""mutant: bytes sent over all ranks, the experts go over all ranks"""

from collections.abc import Iterable

import torch
from torch import nn

from course_lib.comm import Group, all_reduce


def expert_grad_sync(
    experts: Iterable[nn.Parameter], others: Iterable[nn.Parameter], replicas: Group, world: Group
) -> None:
    for parameter in experts:
        if parameter.requires_grad:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            all_reduce(parameter.grad, replicas)
            parameter.grad.div_(world.size)
            all_reduce(torch.zeros_like(parameter.grad), world)
    for parameter in others:
        if parameter.requires_grad:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            all_reduce(parameter.grad, world, "avg")
