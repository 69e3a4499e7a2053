"""mutant: has not begun when the next gradient, whatever order they come in"""

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

        self._trained = [p for p in module.parameters() if p.requires_grad]
        self._ready = set()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def _launch(self, parameter: torch.Tensor) -> None:
        self._ready.add(parameter)
        while self._trained[len(self._under_way)] in self._ready:
            gradient = self._trained[len(self._under_way)].grad
            self._under_way.append(all_reduce(gradient, self.group, "avg", async_op=True))
            if len(self._under_way) == len(self._trained):
                break

    def wait(self) -> None:
        for work in self._under_way:
            work.wait()
        self._under_way.clear()
        self._ready.clear()
