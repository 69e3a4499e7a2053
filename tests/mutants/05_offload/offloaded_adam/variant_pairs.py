"""variant: pairs of parameter and master, and a step that looks at used ones only"""

from collections.abc import Iterable
from typing import Any

import torch


class OffloadedAdam:
    def __init__(self, parameters: Iterable[torch.Tensor], link: Any, **options: Any) -> None:
        self.link = link
        self.pairs = {}
        for p in parameters:
            if p.requires_grad:
                host = link.down(p.detach())
                self.pairs[p] = host.to(torch.promote_types(host.dtype, torch.float32))
        self.inner = torch.optim.AdamW(list(self.pairs.values()), **options)
        self.param_groups = self.inner.param_groups

    @torch.no_grad()
    def step(self) -> None:
        used = [(p, master) for p, master in self.pairs.items() if p.grad is not None]
        for p, master in used:
            master.grad = self.link.down(p.grad).to(master.dtype)
        self.inner.step()
        for p, master in used:
            self.link.up(master.to(p.dtype), p)
            master.grad = None

    def zero_grad(self) -> None:
        for p in self.pairs:
            p.grad = None
