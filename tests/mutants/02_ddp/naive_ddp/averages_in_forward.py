"""mutant: average the gradients before the step, something was sent in forward"""

from typing import Any

import torch
from torch import nn

from course_lib.comm import Group, all_reduce, broadcast


class NaiveDDP(nn.Module):
    def __init__(self, module: nn.Module, group: Group) -> None:
        super().__init__()
        self.module = module
        self.group = group
        with torch.no_grad():
            for tensor in [*module.parameters(), *module.buffers()]:
                broadcast(tensor, 0, group)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        with torch.no_grad():
            for parameter in self.module.parameters():
                all_reduce(parameter, self.group, "avg")
        return self.module(*args, **kwargs)

    def synchronize(self) -> None:
        pass
