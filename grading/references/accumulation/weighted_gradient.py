"""A gradient in which every part of an update has its weight: the right one, or a wrong one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F

from grading.references.accumulation.token_mean import Model
from grading.references.data_parallel.wrapper import gradient_of

Batch = tuple[torch.Tensor, torch.Tensor]
Gradient = list[torch.Tensor]
Weight = Callable[[int, int], float]  # rank or replica; its micro-batch or piece


class Parts(NamedTuple):
    """What one process has of an update: sums over the tokens of each part."""

    tokens: list[list[int]]  # counted ones, by rank or replica, then micro-batch or piece
    losses: list[list[float]]
    gradients: list[list[Gradient]]

    def combined(self, weight: Weight) -> Gradient:
        """The gradient in which each token of a part weighs as `weight` says."""
        terms = [
            [value * weight(one, other) for value in gradient]
            for one, row in enumerate(self.gradients)
            for other, gradient in enumerate(row)
        ]
        return [torch.stack(values).sum(0) for values in zip(*terms, strict=True)]

    def own(self) -> list[int]:
        """Counted tokens of each rank, or of each replica."""
        return [sum(row) for row in self.tokens]

    def by_token(self, one: int, other: int) -> float:
        """The weight if every token weighs the same."""
        return 1 / sum(self.own())

    def by_replica(self, one: int, other: int) -> float:
        """The weight if tokens of one replica weigh the same, and so do all replicas."""
        return 1 / (sum(self.tokens[one]) * len(self.tokens))


def parts_of(start: Gradient, batches: Sequence[Sequence[Batch]]) -> Parts:
    """Sums over the tokens of each batch."""
    parts = Parts([], [], [])
    for row in batches:
        for total in parts:
            total.append([])
        for tokens, targets in row:
            model = Model(start)
            logits = model(tokens).flatten(0, 1)
            loss = F.cross_entropy(logits, targets.flatten(), reduction="sum")
            loss.backward()
            parts.tokens[-1].append(int((targets != -100).sum()))
            parts.losses[-1].append(loss.item())
            parts.gradients[-1].append([gradient_of(p) for p in model.parameters()])
    return parts


# --- half a repair -------------------------------------------------------------------------------
def window_slips(parts: Parts, length: int) -> dict[str, Gradient]:
    """Wrong means over the micro-batches of all ranks, each of `length` targets."""
    own, world, k = parts.own(), len(parts.tokens), len(parts.tokens[0])
    every = sum(own)
    weights: dict[str, Weight] = {
        "the ranks' means are averaged: a rank with few tokens weighs as much as one with many "
        "(huggingface/transformers #34242)": lambda r, n: 1 / (max(1, own[r]) * world),
        "1/N of it: the replica divides by the group's size once more": (
            lambda r, n: 1 / (every * world)
        ),
        "ignored targets were counted as tokens": lambda r, n: 1 / (k * world * length),
        "divided by the number of micro-batches as well: tokens are the whole denominator": (
            lambda r, n: 1 / (every * k)
        ),
    }
    return {why: parts.combined(weight) for why, weight in weights.items()}


def mesh_slips(parts: Parts) -> dict[str, Gradient]:
    """Wrong means on a mesh: of replicas that lie in pieces."""
    own, dp, cp = parts.own(), len(parts.tokens), len(parts.tokens[0])
    padded = [sum(max(1, n) for n in row) for row in parts.tokens]
    across = [max(1, sum(row[c] for row in parts.tokens)) for c in range(cp)]
    every = sum(own)
    weights: dict[str, Weight] = {
        "1/cp of it: the count is right, and then the pieces of a mean are averaged instead of "
        "added up": lambda d, c: 1 / (own[d] * dp * cp),
        "a piece without a counted token was counted as one token: add up first, and then see to "
        "it that nothing is divided by 0": lambda d, c: 1 / (dp * padded[d]),
        "a mean over the tokens of all replicas: each replica has a mean of its own": (
            lambda d, c: 1 / every
        ),
        "the tokens were counted over all ranks: other replicas have a mean of their own": (
            lambda d, c: 1 / (every * dp)
        ),
        "tokens were counted over dp: other replicas' tokens, and not this sequence's others": (
            lambda d, c: 1 / (across[c] * dp)
        ),
        "cp times too much": lambda d, c: cp / (own[d] * dp),
    }
    return {why: parts.combined(weight) for why, weight in weights.items()}


def replica_slips(parts: Parts, mine: int) -> dict[str, Gradient]:
    """Wrong sums over a window; `mine` is the rank that is looked at."""
    k, world, right = len(parts.tokens[0]), len(parts.tokens), parts.by_token

    def local(rank: int, number: int) -> float:
        return right(rank, number) * world * (rank == mine)

    weights: dict[str, Weight] = {
        "this rank's own gradient: nothing was synchronised": local,
        "the first micro-batch of the window was synchronised, what came after it is this rank's "
        "own (modelscope/FunASR #3472)": lambda r, n: (right if n == 0 else local)(r, n),
        "only the last micro-batch counts": lambda r, n: right(r, n) * (n == k - 1),
        "the sum over the window, not the mean": lambda r, n: right(r, n) * k,
    }
    return {why: parts.combined(weight) for why, weight in weights.items()}


def norm_slips(own: torch.Tensor, mine: int, limit: float) -> dict[str, torch.Tensor]:
    """Wrong norms of a whole, from the norms that the ranks' parts of it have."""
    whole = own.square().sum().sqrt()
    return {
        "do the told run's sum by hand: who knows which part of it?": own[mine],
        "norms were added up: add up their squares, then take the root": own.sum(),
        "this is the largest norm of a rank, not that of all gradients as one vector": own.max(),
        "the squares were averaged: they add up": whole / len(own) ** 0.5,
        "the root of the sum is missing": whole**2,
        "this is the norm after clipping": whole.clamp(max=limit),
    }
