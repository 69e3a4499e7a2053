"""mutant: past course_lib.comm"""

from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from course_lib.comm import Group, broadcast


class OverlapDDP(nn.Module):
    def __init__(self, module: nn.Module, group: Group) -> None:
        super().__init__()
        self.module = module
        self.group = group
        for tensor in [*module.parameters(), *module.buffers()]:
            broadcast(tensor.detach(), 0, group)
        self._under_way = []
        for parameter in module.parameters():
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(self._launch)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def _launch(self, parameter: torch.Tensor) -> None:
        parameter.grad /= self.group.size
        self._under_way.append(dist.all_reduce(parameter.grad, group=self.group.handle, async_op=True))

    def wait(self) -> None:
        for work in self._under_way:
            work.wait()
        self._under_way.clear()
