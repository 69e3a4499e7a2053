"""MasterWeightAdam: compute with bf16 weights, and accumulate their updates in float32.

Notebook 09. A bf16 number has 8 significant bits: the next number below 1.0 is 0.99609. An update
of 0.001 is rounded away every time, however many there are, and training makes no progress. So the
optimizer keeps a float32 copy of every weight, the *master*. Updates go to the master, where they
accumulate, and the bf16 weight is the rounded master. Per parameter, this takes

    2 bytes weight + 2 bytes gradient + 4 master + 4 mean + 4 square = 16 bytes

The update is AdamW's, all of it in float32. In the t-th update of a parameter (t = 1, 2, ...) with
gradient g, master w, mean m and square v, both 0 at first:

    w = w - lr · weight_decay · w
    m = beta1 · m + (1 - beta1) · g          v = beta2 · v + (1 - beta2) · g²
    w = w - lr · (m / (1 - beta1^t)) / (√(v / (1 - beta2^t)) + eps)

Rules:

- `masters`, `means` and `squares` are lists of float32 tensors, one for each parameter, in order.
  These 12 bytes per parameter are all that is kept between steps.
- `step` converts the gradient to float32 before it does anything else with it, updates the lists'
  tensors in place, writes the rounded master into the parameter (in place too: the model has that
  tensor) and sets the parameter's `grad` to None.
- A parameter without a gradient does not change, and its count t does not increase: each parameter
  has its own t.

Write the update yourself; torch.optim is not needed.
"""

from collections.abc import Iterable

import torch
from torch import nn


class MasterWeightAdam:
    """AdamW over float32 masters of 16-bit parameters.

    Args:
        parameters: bf16 or fp16; may be a generator.
        lr: the learning rate.
        betas: beta1 for the mean and beta2 for the square.
        eps: added to the root.
        weight_decay: as in the formula above.
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
        # BEGIN SOLUTION: the lists
        self.parameters = list(parameters)
        self.masters = [p.detach().float() for p in self.parameters]
        self.means = [torch.zeros_like(master) for master in self.masters]
        self.squares = [torch.zeros_like(master) for master in self.masters]
        self.steps = [0] * len(self.parameters)
        # END SOLUTION

    @torch.no_grad()
    def step(self) -> None:
        """Updates the masters, and the parameters from them."""
        # BEGIN SOLUTION: step
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
            p.grad = None
        # END SOLUTION
