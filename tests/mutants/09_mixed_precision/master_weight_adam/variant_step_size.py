"""variant: the corrections in the step size, new tensors in the lists"""

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
            self.means[place] = mean = torch.lerp(gradient, mean, beta1)
            self.squares[place] = square = torch.lerp(gradient * gradient, square, beta2)
            rate = self.lr / (1 - beta1 ** self.steps[place])
            root = (square / (1 - beta2 ** self.steps[place])).sqrt() + self.eps
            kept = master * (1 - self.lr * self.weight_decay)
            self.masters[place] = kept - rate * mean / root
            p.copy_(self.masters[place])
            p.grad = None
