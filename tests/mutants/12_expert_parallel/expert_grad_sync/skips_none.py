"""mutant: deadlock, takes part with zeros"""

from collections.abc import Iterable

import torch
from torch import nn

from course_lib.comm import Group, all_reduce


def expert_grad_sync(
    experts: Iterable[nn.Parameter], others: Iterable[nn.Parameter], replicas: Group, world: Group
) -> None:
    for parameters, group in ((experts, replicas), (others, world)):
        for parameter in parameters:
            if parameter.grad is not None:
                all_reduce(parameter.grad, group)
                parameter.grad.div_(world.size)
