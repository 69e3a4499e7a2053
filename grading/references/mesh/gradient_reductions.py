"""Gradients of one parameter on all ranks of a mesh, and what a plan of reductions gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from course_lib.comm import axis_lines, coordinates
from course_lib.grade.suite import Run

ENDS = ("ends",)
OWNERS = {"norm": ("pp",), "tied": ("tp",), "expert": ("pp", "ep", "tp"), "other": ("pp", "tp")}
Sizes = dict[str, int]


class Reduction(NamedTuple):
    """Add up over the ranks that differ in these axes alone, then divide."""

    axes: tuple[str, ...]
    divisor: float


class Waits(Exception):
    """A rank waits for another that does not take part."""

    def __init__(self, rank: int, other: int) -> None:
        super().__init__(f"rank {rank} waits for rank {other}")
        self.rank, self.other = rank, other


def lines(axes: Sequence[str], sizes: Sizes) -> list[list[int]]:
    """The groups of ranks along some axes, or the two ends of each pipeline."""
    if tuple(axes) != ENDS:
        return axis_lines(tuple(axes), sizes)
    found = []
    for line in axis_lines("pp", sizes):
        found += [sorted({line[0], line[-1]}), *([rank] for rank in line[1:-1])]
    return found


def right_plan(kind: str, sizes: Sizes, sequence: bool) -> list[Reduction]:
    """What each kind needs."""
    first = {"norm": [Reduction(("tp",), 1)] * sequence, "tied": [Reduction(ENDS, 1)]}
    axes = ("dp", "cp") if kind == "expert" else ("dp", "ep", "cp")
    return [*first.get(kind, []), Reduction(axes, sizes["dp"] * sizes["ep"] * sizes["cp"])]


def slips(kind: str, sizes: Sizes, sequence: bool) -> dict[str, list[Reduction]]:
    """Known wrong plans, each under the sentence that explains it."""
    *first, last = right_plan(kind, sizes, sequence)
    size = {**sizes, "ends": 2 if sizes["pp"] > 1 else 1}
    found: dict[str, list[Reduction]] = {}
    for (axis,), _ in first:
        parts = "each rank of tp has the gradient of its own positions"
        if axis == "ends":
            parts = "the two ends of pp have used the tied weight differently"
        found |= {
            f"{parts}: these were not added up over {axis}": [last],
            f"averaged over {axis}: these are parts of one sum, which is not divided": [
                Reduction((axis,), size[axis]),
                last,
            ],
            f"added up over {axis} twice": [*first, *first, last],
        }
    for axis in last.axes:
        others = tuple(other for other in last.axes if other != axis)
        words = f"ranks of {axis} have other tokens, but are left out of the mean"
        found[words] = [*first, Reduction(others, last.divisor / sizes[axis])]
        found[f"{words}, which is divided by them nevertheless"] = [
            *first,
            Reduction(others, last.divisor),
        ]
    found["nothing was added up over dp, ep and cp"] = first
    if kind == "expert":
        found |= _expert_slips(sizes, last)
    found |= {
        "this is the sum: divide by D = dp · ep · cp": [*first, Reduction(last.axes, 1)],
        "divided twice": [*first, Reduction(last.axes, last.divisor**2)],
        "all was done twice: added up, divided, added up and divided": [*first, last, *first, last],
    }
    for axis, n in sizes.items():
        if axis not in last.axes and kind != "tied" and n > 1:
            mixed = [] if (axis,) in [axes for axes, _ in first] else [Reduction((axis,), 1)]
            why = _why_not(kind, axis)
            found |= {
                f"added up over {axis}: {why}": [*first, *mixed, last],
                f"averaged over {axis}: {why}": [
                    *first,
                    *mixed,
                    Reduction(last.axes, last.divisor * n),
                ],
            }
    return found


def _expert_slips(sizes: Sizes, last: Reduction) -> dict[str, list[Reduction]]:
    """What goes wrong with experts only."""
    replicas = sizes["dp"] * sizes["cp"]
    every = ("dp", "ep", "cp")
    return {
        "divided by dp · cp: in the sum are the losses of all ranks of ep as well, so divide by D":
            [Reduction(last.axes, replicas)],
        "different experts are mixed: ranks of ep do not have the same ones":
            [Reduction(every, last.divisor)],
        "different experts are added up: ranks of ep do not have the same ones":
            [Reduction(every, 1)],
    }  # fmt: skip


def _why_not(kind: str, axis: str) -> str:
    if axis == "tp":
        same = "its ranks have the same gradient already, without sequence parallelism"
        return same if kind == "norm" else "its ranks have other parts of the matrix"
    return "its ranks do not have the same parameter"


class Given:
    """One parameter on a mesh: who has it, and what a backward has left where.

    The loss of a rank's own tokens is Σ part · tanh(weight); the batch's is the sum of these.

    Args:
        run: of the check.
        sizes: of the mesh.
        kind: of the parameter.
        sequence: whether there is sequence parallelism.
        shape: of the parameter.
        gap: whether a rank does not use it.

    Attributes:
        holders: ranks that have it, or on other places a parameter like it.
        parts: what each of them has, or None for no use.
        plan: what makes their gradients those of the batch's loss.
    """

    def __init__(
        self,
        run: Run,
        sizes: Sizes,
        kind: str,
        sequence: bool,
        shape: tuple[int, ...],
        gap: Callable[[int], bool] | None = None,
    ) -> None:
        self.sizes, self.kind, self.sequence = sizes, kind, sequence
        world = int(torch.tensor(list(sizes.values())).prod())
        self.places = [coordinates(rank, sizes) for rank in range(world)]
        last = sizes["pp"] - 1
        self.holders = [
            rank
            for rank, place in enumerate(self.places)
            if kind != "tied" or place["pp"] in (0, last)
        ]
        self.rows = sizes["dp"] * sizes["ep"] * sizes["cp"]
        weights, parts = run.random((world, *shape)), run.random((world, *shape))
        self.weights = [weights[self.line(rank)[0]] for rank in range(world)]
        self.parts: list[torch.Tensor | None] = [
            None if gap and gap(rank) else parts[self.distinct(rank)] for rank in range(world)
        ]
        self.plan = right_plan(kind, sizes, sequence)

    def line(self, rank: int) -> list[int]:
        """The ranks that have the same parameter, or the same part of it."""
        owner = [self.places[rank][axis] for axis in OWNERS[self.kind]]
        return [
            other
            for other in self.holders
            if [self.places[other][axis] for axis in OWNERS[self.kind]] == owner
        ]

    def distinct(self, rank: int) -> int:
        """The first rank with the same gradient: without sequence parallelism norms see all."""
        if self.kind != "norm" or self.sequence:
            return rank
        return next(line[0] for line in lines(("tp",), self.sizes) if rank in line)

    def weight(self, rank: int) -> torch.Tensor:
        """Of the rank's parameter."""
        return self.weights[rank]

    def truth(self, rank: int) -> torch.Tensor:
        """The gradient that one process has: of the losses of all tokens."""
        weight = self.weights[rank].clone().requires_grad_()
        loss = 0 * weight.sum()  # if no rank has a part, the gradient is zeros
        for other in {self.distinct(other) for other in self.line(rank)}:
            part = self.parts[other]
            if part is not None:
                loss = loss + (part * torch.tanh(weight)).sum()
        return torch.autograd.grad(loss, weight)[0]

    def own(self, rank: int) -> torch.Tensor:
        """What a rank's backward has left."""
        part = self.parts[rank]
        slope = 1 - torch.tanh(self.weights[rank]) ** 2
        return torch.zeros_like(slope) if part is None else self.rows * part * slope

    def simulate(self, plan: Sequence[Reduction]) -> dict[int, torch.Tensor]:
        """What each rank has once a plan is carried out.

        Raises:
            Waits: a rank waits for one that does not have such a parameter.
        """
        found = {rank: self.own(rank) for rank in self.holders}
        for axes, divisor in plan:
            before = found
            found = {}
            for line in lines(axes, self.sizes):
                there = [rank for rank in line if rank in before]
                if there and there != line:
                    raise Waits(there[0], next(rank for rank in line if rank not in before))
                total = sum((before[rank] for rank in there), torch.zeros(()))
                found |= dict.fromkeys(there, total / divisor)
        return found
