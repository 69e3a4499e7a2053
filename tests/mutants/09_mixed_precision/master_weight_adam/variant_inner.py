"""variant: torch's own AdamW over the masters, one for each parameter"""

from collections.abc import Iterable

import torch
from torch import nn


class MasterWeightAdam:
    """AdamW over float32 masters of 16-bit parameters."""

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        lr: float,
        betas: tuple[float, float],
        eps: float,
        weight_decay: float,
    ) -> None:
        self.parameters = list(parameters)
        self.masters = [p.detach().float().requires_grad_() for p in self.parameters]
        options = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        self.inner = torch.optim.AdamW(self.masters, **options)
        self.means = [torch.zeros_like(master) for master in self.masters]
        self.squares = [torch.zeros_like(master) for master in self.masters]

    @torch.no_grad()
    def step(self) -> None:
        """Updates the masters, and the parameters from them."""
        for p, master in zip(self.parameters, self.masters):
            master.grad = None if p.grad is None else p.grad.float()
        self.inner.step()
        for i, (p, master) in enumerate(zip(self.parameters, self.masters)):
            if p.grad is not None:
                self.means[i] = self.inner.state[master]["exp_avg"]
                self.squares[i] = self.inner.state[master]["exp_avg_sq"]
                p.copy_(master)
            p.grad = master.grad = None
