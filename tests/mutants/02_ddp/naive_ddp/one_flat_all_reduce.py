"""mutant: all gradients in one all-reduce"""

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
        return self.module(*args, **kwargs)

    def synchronize(self) -> None:
        trained = [p for p in self.module.parameters() if p.requires_grad]
        for parameter in trained:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        flat = torch.cat([p.grad.reshape(-1) for p in trained])
        all_reduce(flat, self.group, "avg")
        for parameter, part in zip(trained, flat.split([p.numel() for p in trained]), strict=True):
            parameter.grad.copy_(part.view(parameter.shape))
