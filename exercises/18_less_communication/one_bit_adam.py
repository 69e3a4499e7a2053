"""1-bit Adam: after a warm-up, Adam's first moment travels as signs.

Notebook 18. Error feedback needs an update that is linear in what is compressed, and Adam's is not:
it divides by √v. So v is frozen after w steps, and from then on it is the first moment m that is
compressed. Step t, with gradient g, and m and v zero before the first step:

    t ≤ w:  g ← mean of g over the ranks;   m ← β₁m + (1-β₁)g;   v ← β₂v + (1-β₂)g²
    t > w:  m ← feedback.mean(β₁m + (1-β₁)g);                     v stays
    always: p ← p - rate / (1-β₁ᵗ) · m / (√(v / (1-β₂ˢ)) + ε),  s = min(t, w)

Rules
- `feedback.mean(list of tensors, group)` is given (`ErrorFeedback(Sign())` of the library). It is
  called once in each step after the warm-up, with the new moments of all parameters in order.
- After the warm-up every rank has the same m, the mean that came back; only g is its own.
- Gradients are this rank's own, and stay as they are. Parameters are changed in place.
- A step of warm-up sends 2(N-1)/N·S bytes, S those of the gradients; later ones send the messages
  alone.

Free to use: torch, and all of `course_lib.comm`.

Your answer may use `comm` of `course_lib`.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from course_lib.comm import Group, all_reduce


class OneBitAdam:
    """Adam over ranks that have gradients of their own.

    Args:
        parameters: the same on every rank; each has a gradient in every step.
        group: the ranks.
        warmup: w, at least 1.
        feedback: what the moments travel by.
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
        """One update on all ranks."""
        self.steps += 1
        raise NotImplementedError("one_bit_adam: moments, and the update")
