"""A small training in one process, and what each rank of a mesh pp × dp × tp has of it.

Paper: Narayanan et al., "Megatron-LM" (2021), section 3.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F

from course_lib.comm import coordinates
from course_lib.grade.suite import Run
from course_lib.model import ModelConfig, Transformer
from grading.references.data_parallel.training import scaled

IGNORED, MICRO, ROWS, LENGTH = -100, 3, 24, 4
STEPS = {"SGD": 3, "AdamW": 2}
WAYS = {"SGD": (torch.optim.SGD, {"lr": 0.2, "momentum": 0.9}),
        "AdamW": (torch.optim.AdamW, {"lr": 0.01})}  # fmt: skip
CLIPPED = "AdamW"  # SGD is not clipped: the length of a gradient shows
Values = dict[str, torch.Tensor]
Batch = tuple[torch.Tensor, torch.Tensor]


def build(shape: dict[str, Any]) -> Transformer:
    """A model whose matrices are large enough for its blocks to matter."""
    model = Transformer(ModelConfig(**shape), seed=3).double()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.mul_(12)
    return model


def part(batch: Sequence[torch.Tensor], index: int, count: int) -> list[Batch]:
    """The micro-batches of part `index` of `count`."""
    inputs, targets = (whole.tensor_split(count)[index].tensor_split(MICRO) for whole in batch)
    return list(zip(inputs, targets, strict=True))


# --- one process ---------------------------------------------------------------------------------
class Step(NamedTuple):
    """What one process computes in a step."""

    loss: float
    gradient: Values  # not clipped
    weights: Values  # after the update


class Piece(NamedTuple):
    """A micro-batch of one place on dp, before the first step: sums over its tokens."""

    loss: float
    gradient: Values
    tokens: int


class Layout:
    """A layout, its hidden inputs, and the same training in one process.

    Args:
        run: of the check.
        sizes: pp, dp, tp.
    """

    def __init__(self, run: Run, sizes: tuple[int, int, int]) -> None:
        self.run, (self.pp, self.dp, self.tp) = run, sizes
        self.sizes = dict(zip(("pp", "dp", "tp"), sizes, strict=True))
        self.world = math.prod(sizes)
        self.words = " × ".join(f"{axis} {size}" for axis, size in self.sizes.items())
        self.shape: dict[str, Any] = {
            "layers": 2, "hidden": 8, "heads": 4, "kv_heads": 2, "sequence": LENGTH,
            "ffn": 2 * run.number(2, 5) + 1, "vocabulary": 2 * run.number(4, 7) + 1,
        }  # fmt: skip
        self.batches = [self._batch(step) for step in range(max(STEPS.values()))]
        self.first = self.total(build(self.shape), 0).gradient
        self.limit = 0.4 * norm_of(self.first)
        self.inputs = {"shape": self.shape, "sizes": self.sizes, "batches": self.batches,
                       "limit": self.limit}  # fmt: skip

    def _batch(self, step: int) -> list[torch.Tensor]:
        """Fewer tokens count in the first rows; after the first step in some rows none."""
        inputs = self.run.integers(0, self.shape["vocabulary"], (ROWS, LENGTH))
        targets = self.run.integers(0, self.shape["vocabulary"], (ROWS, LENGTH))
        left = self.run.random((ROWS, LENGTH)) + torch.linspace(-1, 2, ROWS)[:, None] > 0
        left[:3, 1:] = False
        left[:, 0] = step == 0
        left[:4] &= step == 0
        return [inputs, targets.masked_fill(~left, IGNORED)]

    # --- the same in one process -----------------------------------------------------------------
    def total(self, model: Transformer, step: int) -> Step:
        """Loss and gradient of a whole batch."""
        whole = self._sums(model, *self.batches[step])
        return Step(whole.loss / whole.tokens, scaled(whole.gradient, 1 / whole.tokens), {})

    def _sums(self, model: Transformer, inputs: torch.Tensor, targets: torch.Tensor) -> Piece:
        loss = F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten(), reduction="sum")
        names, parameters = zip(*model.named_parameters(), strict=True)
        grads = torch.autograd.grad(loss, parameters)
        tokens = int((targets != IGNORED).sum())
        return Piece(loss.item(), dict(zip(names, grads, strict=True)), tokens)

    @cached_property
    def trained(self) -> dict[str, list[Step]]:
        """All steps with each optimizer."""
        return {way: self._train(way) for way in WAYS}

    def _train(self, way: str) -> list[Step]:
        model, steps = build(self.shape), []
        kind, options = WAYS[way]
        optimizer = kind(model.parameters(), **options)
        for number in range(STEPS[way]):
            step = self.total(model, number)
            used = self.clipped(step.gradient) if way == CLIPPED else step.gradient
            for name, p in model.named_parameters():
                p.grad = used[name]
            optimizer.step()
            weights = {name: p.detach().clone() for name, p in model.named_parameters()}
            steps.append(step._replace(weights=weights))
        return steps

    def clipped(self, gradient: Values) -> Values:
        """At most as long as the limit."""
        return scaled(gradient, self._factor(norm_of(gradient)))

    def _factor(self, norm: float) -> float:
        return min(1.0, self.limit / (norm + 1e-6))

    # --- what a rank has of it -------------------------------------------------------------------
    def place(self, rank: int) -> dict[str, int]:
        """Its place on each axis."""
        return coordinates(rank, self.sizes)

    def held(self, values: Values, rank: int) -> Values:
        """A rank's part of what one process has."""
        place, found = self.place(rank), {}
        for name, value in values.items():
            if self._stage(name) == place["pp"]:
                across = name.endswith(("output.weight", "down.weight"))
                cut = value.tensor_split(self.tp, 1 if across else 0) if value.dim() == 2 else ()
                found[name] = cut[place["tp"]] if cut else value
        return found

    def sent(self, rank: int) -> dict[str, int]:
        """Bytes of activations and gradients that a rank sends in a step, by axis."""
        place, tp, dp = self.place(rank), self.tp, self.dp
        first, last = place["pp"] == 0, place["pp"] == self.pp - 1
        tokens = ROWS // dp * LENGTH * 8  # bytes of a number for each
        one = tokens * self.shape["hidden"]  # between two blocks
        sums = (4 * self.shape["layers"] // self.pp + first + last) * one + 3 * last * tokens
        size = sum(gradient.nbytes for gradient in self.held(self.first, rank).values())
        return {
            "pp": (2 - first - last) * one,
            "dp": 2 * (dp - 1) * size // dp,
            "tp": 2 * (tp - 1) * sums // tp,
        }

    def _stage(self, name: str) -> int:
        if name.startswith("blocks."):
            return int(name.split(".")[1]) * self.pp // 2
        return 0 if name.startswith("embedding") else self.pp - 1

    # --- known mistakes --------------------------------------------------------------------------
    @cached_property
    def pieces(self) -> list[list[Piece]]:
        """Of each place on dp its micro-batches in the first step."""
        model = build(self.shape)
        return [
            [self._sums(model, *micro) for micro in part(self.batches[0], d, self.dp)]
            for d in range(self.dp)
        ]

    def wrong_scales(self, rank: int) -> dict[str, Values]:
        """Gradients of the first step, not clipped."""
        every, dp = self.pieces, self.dp
        tokens = [sum(piece.tokens for piece in own) for own in every]
        total = sum(tokens)

        def mixed(weights: Sequence[Sequence[float]]) -> Values:
            pairs = [
                (w, piece.gradient)
                for line, own in zip(weights, every, strict=True)
                for w, piece in zip(line, own, strict=True)
            ]
            return {
                name: sum((w * grad[name] for w, grad in pairs), torch.zeros(()))
                for name in every[0][0].gradient
            }

        right = mixed([[1 / total] * MICRO] * dp)
        own = mixed([[(d == self.place(rank)["dp"]) / total] * MICRO for d in range(dp)])
        ranks = mixed([[1 / n] * MICRO for n in tokens])
        micro = mixed([[1 / piece.tokens for piece in line] for line in every])
        plain = mixed([[1.0] * MICRO] * dp)
        sums = "the pipeline's losses are sums: weigh each by 1/tokens of the whole batch"
        known = {
            "all ranks of tp have the same gradient of a norm's weight: not to be summed":
                {name: self.tp * grad for name, grad in right.items() if grad.dim() == 1},
            "this rank's own rows alone: sum gradients over dp, before the update": own,
            "divided by the size of dp, too: the tokens of all are in the weights already":
                scaled(right, 1 / dp),
            "multiplied by the size of dp: the average over dp undoes that, a sum does not":
                scaled(right, dp),
            "the tokens were counted on all ranks: those of one tp line, and of one pp line, have "
            "the same": scaled(right, 1 / self.pp / self.tp),
            "each rank's mean over its own tokens, then the mean of those: a mean of means":
                scaled(ranks, 1 / dp),
            "each rank divided by its own tokens: divide by those of the whole batch": ranks,
            "a mean of the micro-batches' means: they have different numbers of tokens":
                scaled(micro, 1 / dp / MICRO),
            "a sum of the micro-batches' means": micro,
            "a sum over dp of means of the micro-batches' means": scaled(micro, 1 / MICRO),
            sums: scaled(plain, 1 / MICRO), f"{sums} (all weights are 1)": plain,
            f"{sums} (and the mean over dp is none, either)": scaled(plain, 1 / dp / MICRO),
        }  # fmt: skip
        return {why: self.held(values, rank) for why, values in known.items()}

    def wrong_losses(self, right: list[float], rank: int) -> dict[str, list[float]]:
        """Known wrong losses, of all steps or of the first."""
        own = self.pieces[self.place(rank)["dp"]]
        sums, count = sum(piece.loss for piece in own), sum(piece.tokens for piece in own)
        total = sum(piece.tokens for line in self.pieces for piece in line)
        return {
            "only the last stage hears of losses: sum over pp as well": [0.0] * len(right),
            "of this rank's rows only: sum over dp as well": [sums / total],
            "of this rank's rows only, by its own tokens: sum both over dp": [sums / count],
            "ranks of tp have the same losses: not to be summed over tp":
                [self.tp * loss for loss in right],
            "divided by the size of dp, too": [loss / self.dp for loss in right],
            "divided by the number of micro-batches, too": [loss / MICRO for loss in right],
            "the sum over all tokens: divide by their number": [right[0] * total],
        }  # fmt: skip

    def wrong_norms(self, rank: int) -> dict[str, Values]:
        """The first step's gradient, shortened by other norms."""
        gradient, held = self.first, self.held(self.first, rank)
        world, place = range(self.pp * self.dp * self.tp), self.place(rank)

        def square(ranks: Sequence[int], by: int = 1, norms_by: int = 1) -> float:
            parts = [value for r in ranks for value in self.held(gradient, r).values()]
            squares = [float(v.square().sum()) / (norms_by if v.dim() == 1 else by) for v in parts]
            return sum(squares)

        def along(axis: str) -> list[int]:
            return [r for r in world if self.place(r) | {axis: 0} == place | {axis: 0}]

        both = self.dp * self.tp
        known = {
            "clipped by the norm of this rank's part alone: the parts of all belong to it":
                square([rank]),
            "without the other stages: the norm is over `tp` alone":
                square(along("tp"), 1, self.tp),
            "without the other parts of the matrices: the norm is over `pp` alone":
                square(along("pp")),
            "replicas count several times: copies are dp, and dp·tp for the norms' weights":
                square(world),
            "the norms' weights count tp times: all ranks of tp have them": square(world, self.dp,
                                                                                 self.dp),
            "replicas on dp count several times": square(world, 1, self.tp),
            "matrices count once for all of tp: only the norms' weights are whole there":
                square(world, both, both),
        }  # fmt: skip
        own = [
            sum(
                float(sum((p.gradient[name] for p in line), torch.zeros(())).square().sum())
                for name in gradient
            )
            for line in self.pieces
        ]
        early = sum(own) / self.dp / sum(p.tokens for line in self.pieces for p in line) ** 2
        known["clipped before the sum over dp: the norm is that of the final gradient"] = early
        return {"not clipped": held} | {
            why: scaled(held, self._factor(value**0.5)) for why, value in known.items()
        }


def norm_of(values: Values) -> float:
    """Of all together."""
    return sum(float(value.square().sum()) for value in values.values()) ** 0.5
