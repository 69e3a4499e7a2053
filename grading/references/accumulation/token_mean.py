"""A mean over tokens, as one process computes it, and the wrong means that are known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from grading.references.accumulation.windows import Batches, windows

ROWS, LENGTH, RATE = 2, 5, 0.5  # of a micro-batch; learning rate

Weight = Callable[[list[int], int, int], float]  # window, micro-batch, rank


class Model(nn.Module):
    """Embedding, a layer, and the embedding again as output (tied)."""

    def __init__(self, start: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self.embedding, self.middle = (nn.Parameter(value.clone()) for value in start)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """[B, T] to [B, T, V]."""
        return torch.tanh(self.embedding[tokens] @ self.middle) @ self.embedding.t()


class Feed:
    """An iterator that knows how much was taken from it."""

    def __init__(self, batches: Batches) -> None:
        self.batches, self.taken = batches, 0

    def __iter__(self) -> Feed:
        return self

    def __next__(self) -> tuple[torch.Tensor, torch.Tensor]:
        if self.taken == len(self.batches):
            raise StopIteration
        self.taken += 1
        return self.batches[self.taken - 1]


def optimizer_of(model: Model, name: str) -> torch.optim.Optimizer:
    """SGD or AdamW."""
    return getattr(torch.optim, name)(model.parameters(), lr=RATE)


def padded(batches: Batches, ignored: int) -> Batches:
    """The same batches, with another value in the place of -100."""
    return [(tokens, targets.where(targets != -100, ignored)) for tokens, targets in batches]


class Reference:
    """One process that has the micro-batches of all ranks.

    Args:
        start: the model's first weights.
        batches: of each rank.
        case: number of micro-batches, k, optimizer, ignored target.
        job: how many ranks there are in all.
    """

    def __init__(
        self, start: list[torch.Tensor], batches: list[Batches], case: Any, job: int
    ) -> None:
        count, self.k, self.name, self.ignored = case
        self.start = start
        self.batches = [padded(rank[:count], self.ignored) for rank in batches]
        self.plan = windows(count, self.k)
        self.world, self.job = len(batches), job

    def tokens(self, window: list[int], ranks: Sequence[int] | None = None) -> int:
        """Counted tokens of these micro-batches, on these ranks or all."""
        chosen = range(self.world) if ranks is None else ranks
        targets = [self.batches[rank][number][1] for rank in chosen for number in window]
        return sum(int((t != self.ignored).sum()) for t in targets)

    def train(self, weight: Weight) -> tuple[list[Any], list[Any], list[torch.Tensor]]:
        """Gradients of each update, each rank's weighted loss in it, weights after the last.

        Args:
            weight: what the sum of the token losses of a micro-batch on a rank is multiplied by.
        """
        model = Model(self.start)
        optimizer = optimizer_of(model, self.name)
        gradients, losses = [], []
        for window in self.plan:
            optimizer.zero_grad()
            losses.append([0.0] * self.world)
            for rank in range(self.world):
                for number in window:
                    loss = self._sum(model, rank, number) * weight(window, number, rank)
                    loss.backward()
                    losses[-1][rank] += loss.item()
            gradients.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
            optimizer.step()
        return gradients, losses, [p.detach().clone() for p in model.parameters()]

    def _sum(self, model: Model, rank: int, number: int) -> torch.Tensor:
        tokens, targets = self.batches[rank][number]
        return F.cross_entropy(
            model(tokens).flatten(0, 1),
            targets.flatten(),
            ignore_index=self.ignored,
            reduction="sum",
        )

    def right(self, window: list[int], number: int, rank: int) -> float:
        """Each token counts the same."""
        return 1 / self.tokens(window)

    def slips(self, mine: int) -> dict[str, Weight]:
        """Known wrong weights; `mine` is the rank that is looked at."""
        world, count = self.world, self.tokens

        def of_one(number: int, ranks: Sequence[int] | None = None) -> int:
            return max(1, count([number], ranks))

        return {
            "a mean of the micro-batches' means: tokens of a short one weigh more": (
                lambda w, n, r: 1 / (of_one(n, [r]) * len(w) * world)
            ),
            "a mean of the ranks' means: the number of tokens is this rank's only": (
                lambda w, n, r: 1 / (max(1, count(w, [r])) * world)
            ),
            "a mean of means: each micro-batch is divided by its own tokens on all ranks": (
                lambda w, n, r: 1 / (of_one(n) * len(w))
            ),
            "1/N of it: the model's average divides by the group's size once more": (
                lambda w, n, r: 1 / (count(w) * world)
            ),
            "divided by the group's size twice": lambda w, n, r: 1 / (count(w) * world**2),
            "the size of the whole job instead of the group's": (
                lambda w, n, r: self.job / world / count(w)
            ),
            "N times too much: the number of tokens is a mean over the ranks already": (
                lambda w, n, r: world / count(w)
            ),
            "the sum of the losses: divide by the number of tokens": lambda w, n, r: 1 / world,
            "the sum of the losses, times N: divide by the number of tokens": lambda w, n, r: 1.0,
            "targets that are ignored were counted as tokens": (
                lambda w, n, r: 1 / (world * len(w) * ROWS * LENGTH)
            ),
            "divided by the number of micro-batches as well: tokens are the whole denominator": (
                lambda w, n, r: 1 / (count(w) * len(w))
            ),
            "this rank's own gradients: nothing was synchronised": (
                lambda w, n, r: world / count(w) * (r == mine)
            ),
            "only the last micro-batch counts": lambda w, n, r: (n == w[-1]) / count(w),
        }
