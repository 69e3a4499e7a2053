"""An epoch in windows of k micro-batches, as one process trains it, and the known slips."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import nn

UNUSED = 2  # numbers in a parameter that no forward uses
RATE = 0.1

Batches = list[tuple[torch.Tensor, torch.Tensor]]
Updates = list[list[torch.Tensor]]


class Model(nn.Module):
    """Two layers, the first used twice (tied), a frozen one between; one is never used."""

    def __init__(self, start: Sequence[torch.Tensor]) -> None:
        super().__init__()
        first, frozen, last = (nn.Parameter(value.clone()) for value in start)
        self.first, self.frozen, self.last = first, frozen.requires_grad_(False), last
        self.unused = nn.Parameter(torch.ones(UNUSED, dtype=torch.float64))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """[samples, WIDTH] to [samples, OUT]."""
        hidden = torch.tanh(inputs @ self.first) @ self.frozen
        return torch.tanh(hidden @ self.first) @ self.last

    def trained(self) -> list[nn.Parameter]:
        """What needs a gradient."""
        return [self.first, self.last, self.unused]


def squared_error(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The mean over a micro-batch."""
    return (outputs - targets).pow(2).mean()


def optimizer_of(model: Model, name: str) -> torch.optim.Optimizer:
    """SGD or AdamW over what needs a gradient."""
    return getattr(torch.optim, name)(model.trained(), lr=RATE)


def windows(count: int, k: int) -> list[list[int]]:
    """The micro-batches of each update."""
    return [list(range(begin, min(begin + k, count))) for begin in range(0, count, k)]


def train(
    start: list[torch.Tensor],
    batches: list[Batches],
    plan: list[list[int]],
    name: str,
    weight: Callable[[list[int], int], float],
    fresh: bool = True,
) -> tuple[Updates, list[torch.Tensor]]:
    """One process: the gradients of each update, and the weights after the last.

    Args:
        start: the model's first weights.
        batches: of each rank.
        plan: the micro-batches of each update.
        name: of the optimizer.
        weight: what a micro-batch's loss is multiplied by, given its window and its number.
        fresh: whether gradients are zeroed before an update.
    """
    model = Model(start)
    optimizer = optimizer_of(model, name)
    updates: Updates = []
    for window in plan:
        if fresh:
            optimizer.zero_grad()
        for number in window:
            for rank in batches:
                loss = squared_error(model(rank[number][0]), rank[number][1])
                (loss * weight(window, number) / len(batches)).backward()
        model.unused.grad = torch.zeros_like(model.unused)
        updates.append([p.grad.clone() for p in model.trained() if p.grad is not None])
        optimizer.step()
    return updates, [p.detach().clone() for p in model.trained()]


def mean(window: list[int], number: int) -> float:
    """The right weight: the loss is the mean over the window."""
    return 1 / len(window)


def slips(
    start: list[torch.Tensor], batches: list[Batches], count: int, k: int, name: str, rank: int
) -> dict[str, tuple[Updates, list[torch.Tensor]]]:
    """Known wrong epochs."""
    plan = windows(count, k)
    shifted = [[0]] + [[1 + n for n in window] for window in windows(count - 1, k)]

    def only(place: int, window: list[int], number: int) -> float:
        return mean(window, number) * (number == window[place])

    return {
        "the sum over the window, not the mean: divide each loss by the window's length": train(
            start, batches, plan, name, lambda window, number: 1.0
        ),
        "the last window is shorter, but its losses were divided by k": train(
            start, batches, plan, name, lambda window, number: 1 / k
        ),
        "only the last micro-batch counts: zero the gradients once an update": train(
            start, batches, plan, name, partial(only, -1)
        ),
        "gradients of the last update are still in it: zero them at each update's start": train(
            start, batches, plan, name, mean, fresh=False
        ),
        "windows are off by one: the first update took one micro-batch only": train(
            start, batches, shifted, name, lambda window, number: 1 / k
        ),
        "this rank's own gradients: nothing was synchronised": train(
            start, [batches[rank]], plan, name, mean
        ),
    }
