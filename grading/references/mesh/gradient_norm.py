"""A model's gradients laid on a mesh pp × dp × tp, their norm, and the wrong norms that are known.

Paper: Pascanu et al., "On the Difficulty of Training Recurrent Neural Networks" (2013), section
3.2; the mistakes are those of public code: norms of copies added up, stages left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from grading.references.mesh.coordinates import Grid

Sizes = Mapping[str, int]


class Whole(NamedTuple):
    """A parameter of the model, as one process has it.

    Attributes:
        grad: float64, or of the dtype that it is trained in; None if it is frozen.
        stage: the rank of pp that has it; -1 for both ends.
        cut: the dim along which tp cuts it; None if tp leaves it whole.
        zero: whether dp cuts it, flat, as ZeRO does.
    """

    grad: torch.Tensor | None
    stage: int = 0
    cut: int | None = None
    zero: bool = False


class Piece(NamedTuple):
    """What one rank has of a parameter, and on which other ranks it is."""

    grad: torch.Tensor | None
    same_on: tuple[str, ...]
    ends: bool

    def copies(self, sizes: Sizes) -> int:
        """How many ranks have the same."""
        ends = min(2, sizes.get("pp", 1)) if self.ends else 1
        return ends * math.prod(sizes.get(axis, 1) for axis in self.same_on)

    @property
    def square(self) -> float:
        """The sum of the squares of its elements."""
        return 0.0 if self.grad is None else float(self.grad.double().square().sum())


Weigh = Callable[[Piece], float]


class Layout:
    """The parts of a model on each rank of a mesh.

    Args:
        sizes: of pp, dp and tp.
        model: its parameters.
    """

    def __init__(self, sizes: Sizes, model: Sequence[Whole]) -> None:
        self.sizes, self.model = dict(sizes), model
        self.grid = Grid(self.sizes)
        self.pieces = [self._pieces(self.grid.place(rank)) for rank in self.grid.ranks]

    def _pieces(self, place: Mapping[str, int]) -> list[Piece]:
        """What the rank at a place has."""
        found = []
        for grad, stage, cut, zero in self.model:
            if stage not in (-1, place["pp"]) or (stage < 0 and not self._is_end(place["pp"])):
                continue
            if grad is not None and cut is not None:
                grad = grad.tensor_split(self.sizes.get("tp", 1), cut)[place["tp"]]
            if grad is not None and zero:
                grad = grad.flatten().tensor_split(self.sizes.get("dp", 1))[place["dp"]]
            same_on = ("dp",) * (not zero) + ("tp",) * (cut is None)
            found.append(Piece(None if grad is None else grad.contiguous(), same_on, stage < 0))
        return found

    def _is_end(self, stage: int) -> bool:
        return stage in (0, self.sizes.get("pp", 1) - 1)

    @property
    def norm(self) -> float:
        """Of the whole model, in one process."""
        grads = [whole.grad.double() for whole in self.model if whole.grad is not None]
        return math.sqrt(sum(float(grad.square().sum()) for grad in grads))

    # --- known mistakes ----------------------------------------------------------------------
    def wrong_norms(self, rank: int) -> dict[str, float]:
        """What known mistakes make of the norm, on one rank."""
        sizes, place = self.sizes, self.grid.place(rank)
        every, tp = list(self.grid.ranks), self.grid.line(rank, "tp")
        plane = [r for r in every if self.grid.place(r)["dp"] == place["dp"]]

        def without(*axes: str) -> Weigh:
            return lambda p: math.prod(sizes.get(a, 1) for a in axes if a in p.same_on) / right(p)

        def right(piece: Piece) -> int:
            return piece.copies(sizes)

        def once(piece: Piece) -> float:
            return 1 / right(piece)

        def ends(divisor: int) -> Weigh:
            return lambda p: once(p) * (min(2, sizes.get("pp", 1)) / divisor if p.ends else 1)

        whole = [self._sum([r], once) for r in every]
        return {
            name: value if name == NO_ROOT else math.sqrt(value)
            for name, value in {
                "copies count as often as they are there": self._sum(every, lambda _: 1),
                "what tp leaves whole counts tp times": self._sum(every, without("tp")),
                "replicas count dp times": self._sum(every, without("dp")),
                "copies on dp and tp count as often as they are there": self._sum(
                    every, without("dp", "tp")
                ),
                "tied ends count twice": self._sum(every, ends(1)),
                "tied ends are on two ranks of pp, not on all": self._sum(every, ends(_pp(sizes))),
                "tied ends are one part if pp is 1": self._sum(every, ends(2)),
                "stages are omitted: this is the sum over tp": self._sum(tp, without("dp")),
                "stages are omitted, and shards of dp: this is the sum over tp": self._sum(
                    tp, once
                ),
                "shards of dp are omitted: this is the sum over pp and tp": self._sum(
                    plane, without("dp")
                ),
                "replicas are divided by dp and not summed over it": self._sum(plane, once),
                "max instead of sum: the largest rank's": max(whole),
                "max instead of sum, of all that a rank has": max(
                    self._sum([r], lambda _: 1) for r in every
                ),
                "the root comes after the sum over the ranks: squares add up, norms do not": sum(
                    map(math.sqrt, whole)
                )
                ** 2,
                "norms do not add up, and copies count as often as they are there": sum(
                    math.sqrt(self._sum([r], lambda _: 1)) for r in every
                )
                ** 2,
                NO_ROOT: sum(whole),
                "this is the rank's own norm: nothing was summed over the ranks": self._sum(
                    [rank], lambda _: 1
                ),
                "this is the rank's own share: nothing was summed over the ranks": whole[rank],
                "this is a mean over the ranks: squares are summed": sum(whole) / len(whole),
                "norms of parts were added up: squares add up, norms do not": sum(
                    math.sqrt(p.square) * once(p) for r in every for p in self.pieces[r]
                )
                ** 2,
                "copies are divided by the square of their number": self._sum(
                    every, lambda p: once(p) ** 2
                ),
                "a gradient without dims is left out": self._sum(
                    every, lambda p: once(p) * (p.grad is not None and p.grad.dim() > 0)
                ),
            }.items()
        }

    def _sum(self, ranks: Sequence[int], weigh: Weigh) -> float:
        """Of squares over these ranks, each piece weighed."""
        return sum(weigh(piece) * piece.square for r in ranks for piece in self.pieces[r])


NO_ROOT = "this is the square of the norm"


def _pp(sizes: Sizes) -> int:
    return sizes.get("pp", 1)


def factor(norm: float, max_norm: float) -> float:
    """By which gradients are multiplied."""
    return min(1.0, max_norm / (norm + 1e-6))


def wrong_factors(layout: Layout, rank: int, max_norm: float) -> dict[str, float]:
    """By which known mistakes multiply, on one rank."""
    norm = layout.norm
    own = math.sqrt(sum(piece.square for piece in layout.pieces[rank]))
    return {
        "gradients were not clipped": 1.0,
        "clipped by the rank's own norm: the factor is the same on every rank":
            factor(own, max_norm),
        "short gradients were made longer: the factor is at most 1": max_norm / (norm + 1e-6),
        "clipped twice": factor(norm, max_norm) ** 2,
        "without the 1e-6 in the denominator": min(1.0, max_norm / norm),
        "divided by the norm, and not multiplied by max_norm": 1 / (norm + 1e-6),
    }  # fmt: skip


def scaled(piece: Piece, by: float) -> Any:
    """A piece's gradient times a number, in its dtype."""
    return None if piece.grad is None else (piece.grad.double() * by).to(piece.grad.dtype)
