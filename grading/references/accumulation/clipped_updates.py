"""Clipped updates, as one process computes them, and the wrong orders that are known.

Paper: Pascanu, Mikolov and Bengio, "On the difficulty of training recurrent neural networks"
(2013), section 3.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from grading.references.accumulation.windows import Batches, squared_error, windows

UPDATES, WINDOW = 3, 3  # the last window has one micro-batch less
SCALE, RATE = 1024.0, 0.5


class Model(nn.Module):
    """Two layers, a frozen one between them, and a parameter that is never used."""

    def __init__(self, start: Sequence[torch.Tensor]) -> None:
        super().__init__()
        first, frozen, last = (nn.Parameter(value.clone()) for value in start)
        self.first, self.frozen, self.last = first, frozen.requires_grad_(False), last
        self.unused = nn.Parameter(torch.ones(2, dtype=torch.float64), requires_grad=False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """[samples, WIDTH] to [samples, OUT]."""
        return torch.tanh(inputs @ self.first) @ self.frozen @ self.last


def total_norm(gradients: Sequence[torch.Tensor], norm_type: float = 2.0) -> torch.Tensor:
    """The norm of all of them as one vector."""
    return torch.linalg.vector_norm(torch.cat([g.flatten() for g in gradients]), norm_type)


def clipped(
    gradients: Sequence[torch.Tensor], limit: float, norm_type: float = 2.0
) -> list[torch.Tensor]:
    """The gradients, at most `limit` long."""
    factor = min(1.0, limit / (float(total_norm(gradients, norm_type)) + 1e-6))
    return [gradient * factor for gradient in gradients]


def clip_slips(
    gradients: Sequence[torch.Tensor], limit: float, norm_type: float
) -> dict[str, list[torch.Tensor]]:
    """Known wrong ways to clip."""
    norm = float(total_norm(gradients, norm_type))
    sums = sum(float(torch.linalg.vector_norm(g, norm_type)) for g in gradients)
    return {
        "the gradients were not changed: a generator is used up after one loop, and a copy is no "
        "gradient": list(gradients),
        "each gradient was clipped by itself: the norm is that of all together": [
            clipped([g], limit, norm_type)[0] for g in gradients
        ],
        "short gradients were made longer: the factor is at most 1": [
            g * (limit / (norm + 1e-6)) for g in gradients
        ],
        "norms do not add up: the norm of the norms is the norm of all": [
            g * min(1.0, limit / (sums + 1e-6)) for g in gradients
        ],
        "this is the 2-norm: `norm_type` says which": clipped(gradients, limit, 2.0),
        "without the 1e-6 in the denominator": [g * min(1.0, limit / norm) for g in gradients],
        "clipped element by element: that changes the direction": [
            g.clamp(-limit, limit) for g in gradients
        ],
    }


class Reference:
    """One process that has the micro-batches of all ranks.

    Args:
        start: the model's first weights.
        batches: of each rank.
    """

    def __init__(self, start: list[torch.Tensor], batches: list[Batches]) -> None:
        self.start, self.batches = start, batches
        self.world = len(batches)
        self.plan = windows(UPDATES * WINDOW - 1, WINDOW)  # micro-batches of each update

    def gradient(self, model: Model, window: list[int], ranks: Sequence[int]) -> list[torch.Tensor]:
        """Mean over these micro-batches of these ranks."""
        trained = [model.first, model.last]
        chosen = [self.batches[rank][number] for rank in ranks for number in window]
        losses = [squared_error(model(inputs), targets) for inputs, targets in chosen]
        return list(torch.autograd.grad(torch.stack(losses).mean(), trained))

    def train(self, limit: float, name: str) -> tuple[list[Any], list[Any], list[torch.Tensor]]:
        """Norms, clipped gradients of each update, and the weights after the last."""
        model = Model(self.start)
        trained = [model.first, model.last]
        optimizer = getattr(torch.optim, name)(trained, lr=RATE)
        norms, updates = [], []
        for window in self.plan:
            gradients = self.gradient(model, window, range(self.world))
            norms.append(total_norm(gradients))
            updates.append(clipped(gradients, limit))
            for parameter, gradient in zip(trained, updates[-1], strict=True):
                parameter.grad = gradient.clone()
            optimizer.step()
        return norms, updates, [p.detach().clone() for p in trained]

    def slips(self, limit: float, mine: int) -> dict[str, list[torch.Tensor]]:
        """Known wrong gradients of the first update, on rank `mine`."""
        model, window = Model(self.start), self.plan[0]
        everybody = range(self.world)
        whole = self.gradient(model, window, everybody)
        scaled = [g * SCALE for g in whole]
        local = [self.gradient(model, window, [rank]) for rank in everybody]
        own = limit / (float(total_norm(local[mine])) + 1e-6)
        return {
            "only the optimizer's first group was divided by the scale: divide all gradients":
                clipped([whole[0], *scaled[1:]], limit),
            "clipped while still scaled, then unscaled: divide by the scale first": [
                g / SCALE for g in clipped(scaled, limit)
            ],
            "clipped while still scaled: divide by the scale before": clipped(scaled, limit),
            "clipped before the synchronisation: each rank shortened its own gradient": mean(
                [clipped(each, limit) for each in local]
            ),
            "the norm is this rank's own, from before the synchronisation": [
                g * min(1.0, own) for g in whole
            ],
            "clipped in each micro-batch: once an update is enough, when all have been added up":
                self._each_micro_batch(model, window, limit),
            "not clipped": whole,
            "still scaled": scaled,
            "unscaled twice": [g / SCALE for g in whole],
            "the sum over the window, clipped: divide each loss by the window's length": clipped(
                [g * len(window) for g in whole], limit
            ),
            "norms were added up over the ranks: they all hold the same gradient": [
                g * min(1.0, limit / (float(total_norm(whole)) * self.world**0.5 + 1e-6))
                for g in whole
            ],
            "this rank's own gradient: nothing was synchronised": clipped(local[mine], limit),
        }  # fmt: skip

    def _each_micro_batch(
        self, model: Model, window: list[int], limit: float
    ) -> list[torch.Tensor]:
        """What comes out if the gradients accumulated so far are clipped after each backward."""
        held = [[torch.zeros_like(p) for p in (model.first, model.last)] for _ in self.batches]
        for number in window:
            for rank in range(self.world):
                new = self.gradient(model, [number], [rank])
                held[rank] = [h + g / len(window) for h, g in zip(held[rank], new, strict=True)]
            if number == window[-1]:
                held = [mean(held)] * self.world
            held = [clipped(each, limit) for each in held]
        return held[0]


def mean(parts: list[list[torch.Tensor]]) -> list[torch.Tensor]:
    """The mean over the ranks of each gradient."""
    return [torch.stack(list(each)).mean(0) for each in zip(*parts, strict=True)]
