"""mutant: float32 travels"""

from collections.abc import Iterable
from typing import Any

import torch


class OffloadedAdam:
    def __init__(self, parameters: Iterable[torch.Tensor], link: Any, **options: Any) -> None:
        self.link = link
        self.parameters = [p for p in parameters if p.requires_grad]
        self.masters = []
        for p in self.parameters:
            wide = torch.promote_types(p.dtype, torch.float32)
            self.masters.append(link.down(p.detach()).to(wide).requires_grad_())
        self.inner = torch.optim.AdamW(self.masters, **options)
        self.param_groups = self.inner.param_groups

    def step(self) -> None:
        for p, master in zip(self.parameters, self.masters):
            master.grad = None if p.grad is None else self.link.down(p.grad).to(master.dtype)
        self.inner.step()
        for p, master in zip(self.parameters, self.masters):
            if p.grad is not None:
                p.data.copy_(self.link.up(master.detach()))

    def zero_grad(self) -> None:
        for p in self.parameters:
            p.grad = None
