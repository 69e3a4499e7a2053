"""variant: Adam written out"""

from collections.abc import Iterable
from typing import Any

import torch


class OffloadedAdam:
    def __init__(
        self,
        parameters: Iterable[torch.Tensor],
        link: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
    ) -> None:
        self.link = link
        self.param_groups = [
            {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        ]
        self.slots = []
        for p in parameters:
            if p.requires_grad:
                master = link.down(p.detach())
                if master.dtype.itemsize < 4:
                    master = master.float()
                self.slots.append([p, master, torch.zeros_like(master), torch.zeros_like(master), 0])

    @torch.no_grad()
    def step(self) -> None:
        options = self.param_groups[0]
        (beta1, beta2), lr = options["betas"], options["lr"]
        for slot in self.slots:
            p, master, first, second, _ = slot
            if p.grad is None:
                continue
            slot[4] += 1
            gradient = self.link.down(p.grad).to(master.dtype)
            master.mul_(1 - lr * options["weight_decay"])
            first.lerp_(gradient, 1 - beta1)
            second.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
            root = second.sqrt().div_((1 - beta2 ** slot[4]) ** 0.5).add_(options["eps"])
            master.addcdiv_(first, root, value=-lr / (1 - beta1 ** slot[4]))
            self.link.up(master.to(p.dtype), p)

    def zero_grad(self) -> None:
        for p, *_ in self.slots:
            p.grad = None
