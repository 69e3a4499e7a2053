"""variant: the ring of lesson 01 instead of the backend's all-reduce; one message at the start for each dtype"""

from typing import Any

import torch
from torch import nn

from course_lib.comm import Group, broadcast, ring_all_reduce


class NaiveDDP(nn.Module):
    def __init__(self, module: nn.Module, group: Group) -> None:
        super().__init__()
        self.module = module
        self.group = group
        tensors = [*module.parameters(), *module.buffers()]
        for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
            some = [tensor.detach() for tensor in tensors if tensor.dtype == dtype]
            flat = torch.cat([tensor.reshape(-1) for tensor in some])
            broadcast(flat, 0, group)
            for tensor, part in zip(some, flat.split([t.numel() for t in some]), strict=True):
                tensor.copy_(part.view(tensor.shape))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def synchronize(self) -> None:
        for parameter in self.module.parameters():
            if not parameter.requires_grad:
                continue
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            ring_all_reduce(parameter.grad, self.group, "avg")
