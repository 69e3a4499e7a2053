"""mutant: were waited for only after the step"""

from typing import Any

import torch
from torch import nn

from course_lib.comm import Group, all_reduce, broadcast


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
        self._before = []

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def _launch(self, parameter: torch.Tensor) -> None:
        work = all_reduce(parameter.grad, self.group, "avg", async_op=True)
        self._under_way.append(work)

    def wait(self) -> None:
        for work in self._before:
            work.wait()
        self._before, self._under_way = self._under_way, []
