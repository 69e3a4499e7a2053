"""mutant: a gradient is still there"""

from collections.abc import Iterable

import torch
from torch import nn


class MasterWeightAdam:
    """AdamW over float32 masters of 16-bit parameters.

    Args:
        parameters: bf16 or fp16; may be a generator.
        lr: the learning rate.
        betas: of the mean and of the square.
        eps: added to the root.
        weight_decay: see above.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        lr: float,
        betas: tuple[float, float],
        eps: float,
        weight_decay: float,
    ) -> None:
        self.lr, self.betas, self.eps, self.weight_decay = lr, betas, eps, weight_decay
        self.parameters = list(parameters)
        self.masters = [p.detach().float() for p in self.parameters]
        self.means = [torch.zeros_like(master) for master in self.masters]
        self.squares = [torch.zeros_like(master) for master in self.masters]
        self.steps = [0] * len(self.parameters)

    @torch.no_grad()
    def step(self) -> None:
        """Updates the masters, and the parameters from them."""
        state = zip(self.parameters, self.masters, self.means, self.squares, strict=True)
        for place, (p, master, mean, square) in enumerate(state):
            if p.grad is None:
                continue
            gradient, (beta1, beta2) = p.grad.float(), self.betas
            self.steps[place] += 1
            master.mul_(1 - self.lr * self.weight_decay)
            mean.lerp_(gradient, 1 - beta1)
            square.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
            true_mean = mean / (1 - beta1 ** self.steps[place])
            root = (square / (1 - beta2 ** self.steps[place])).sqrt() + self.eps
            master.sub_(self.lr * true_mean / root)
            p.copy_(master)
