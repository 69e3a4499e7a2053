"""mutant: this is the sum over all ranks"""

from collections.abc import Iterable

import torch
from torch import nn

from course_lib.comm import Group, all_reduce


def expert_grad_sync(
    experts: Iterable[nn.Parameter], others: Iterable[nn.Parameter], replicas: Group, world: Group
) -> None:
    for parameters, group in ((experts, replicas), (others, world)):
        for parameter in parameters:
            if parameter.requires_grad:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                all_reduce(parameter.grad, group)
