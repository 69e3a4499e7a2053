"""mutant: the tensors were replaced by others"""

from typing import Any

import torch
from torch import nn

from course_lib.comm import Group, all_reduce, broadcast


class NaiveDDP(nn.Module):
    def __init__(self, module: nn.Module, group: Group) -> None:
        super().__init__()
        self.module = module
        self.group = group
        for part in module.modules():
            for name, parameter in list(part.named_parameters(recurse=False)):
                copy = nn.Parameter(parameter.detach().clone(), requires_grad=parameter.requires_grad)
                broadcast(copy.detach(), 0, group)
                setattr(part, name, copy)
        for buffer in module.buffers():
            broadcast(buffer, 0, group)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def synchronize(self) -> None:
        for parameter in self.module.parameters():
            if not parameter.requires_grad:
                continue
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            all_reduce(parameter.grad, self.group, "avg")
