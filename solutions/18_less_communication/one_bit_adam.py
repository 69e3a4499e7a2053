"""1-bit Adam: after a warm-up, Adam's first moment is sent as signs.

Notebook 18. Error feedback needs an update that is linear in what is compressed, and Adam's is not:
it divides by √v. So v is frozen after w steps, and from then on the first moment m is compressed.
Step t, counted from 1, with gradient g, and with m and v zero before the first step:

    t ≤ w:  g ← mean of g over the ranks;   m ← β₁m + (1-β₁)g;   v ← β₂v + (1-β₂)g²
    t > w:  m ← feedback.mean(β₁m + (1-β₁)g);                     v stays
    always: p ← p - rate / (1-β₁ᵗ) · m / (√(v / (1-β₂ˢ)) + ε),  s = min(t, w)

Rules
- `feedback.mean(list of tensors, group)` is given (`ErrorFeedback(Sign())` of the library); it
  returns a list of means. Call it once in each step after the warm-up, with the new moments of all
  parameters in order.
- After the warm-up, m is the mean that `feedback` returned, the same on every rank; only g differs.
- Gradients are this rank's own and are not changed. Parameters are changed in place.
- A step of the warm-up sends 2(N-1)/N·S bytes from each rank, where S is the size of the gradients;
  later steps send only the messages of `feedback`.

You may use torch and all of `course_lib.comm`.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from course_lib.comm import Group, all_reduce


class OneBitAdam:
    """Adam for ranks that each have their own gradients.

    Args:
        parameters: equal on every rank; each has a gradient in every step.
        group: the ranks.
        warmup: w, at least 1.
        feedback: sends the moments; see the rules.
        rate: the learning rate.
        betas: β₁ and β₂.
        eps: ε.
    """

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        group: Group,
        warmup: int,
        feedback: Any,
        rate: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ) -> None:
        self.parameters, self.group, self.warmup = list(parameters), group, warmup
        self.feedback, self.rate, self.betas, self.eps = feedback, rate, betas, eps
        self.steps = 0
        self.first = [torch.zeros_like(p) for p in self.parameters]
        self.second = [torch.zeros_like(p) for p in self.parameters]

    @torch.no_grad()
    def step(self) -> None:
        """Updates the parameters; collective."""
        self.steps += 1
        # BEGIN SOLUTION: moments, and the update
        beta1, beta2 = self.betas
        gradients = [p.grad.clone() for p in self.parameters if p.grad is not None]
        if self.steps <= self.warmup:
            for gradient in gradients:
                all_reduce(gradient, self.group, "avg")
        new = [beta1 * m + (1 - beta1) * g for m, g in zip(self.first, gradients, strict=True)]
        if self.steps <= self.warmup:
            self.first = new
            for v, g in zip(self.second, gradients, strict=True):
                v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
        else:
            self.first = self.feedback.mean(new, self.group)
        seen = min(self.steps, self.warmup)
        for p, m, v in zip(self.parameters, self.first, self.second, strict=True):
            root = (v / (1 - beta2**seen)).sqrt() + self.eps
            p.sub_(self.rate / (1 - beta1**self.steps) * m / root)
        # END SOLUTION
