"""mutant: this is the rank, nothing"""

from collections.abc import Iterable

import torch
from torch import nn

from course_lib.comm import Group, all_reduce


def expert_grad_sync(
    experts: Iterable[nn.Parameter], others: Iterable[nn.Parameter], replicas: Group, world: Group
) -> None:
    with torch.no_grad():
        for parameters, group in ((experts, replicas), (others, world)):
            for parameter in parameters:
                all_reduce(parameter, group, "avg")
