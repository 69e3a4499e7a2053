"""variant: an optimizer for each parameter, inside a real Optimizer"""

from collections.abc import Iterable
from typing import Any

import torch


class OffloadedAdam(torch.optim.Optimizer):
    def __init__(self, parameters: Iterable[torch.Tensor], link: Any, **options: Any) -> None:
        super().__init__([p for p in parameters if p.requires_grad], options)
        self.link = link
        self.pairs = []
        for p in self.param_groups[0]["params"]:
            host = link.down(p.data)
            master = torch.nn.Parameter(host.float() if host.element_size() == 2 else host)
            self.pairs.append((p, master, torch.optim.AdamW([master], **options)))

    @torch.no_grad()
    def step(self) -> None:
        for p, master, optimizer in self.pairs:
            if p.grad is None:
                continue
            optimizer.param_groups[0]["lr"] = self.param_groups[0]["lr"]
            master.grad = self.link.down(p.grad).to(master)
            optimizer.step()
            self.link.up(master.to(p.dtype), p)
