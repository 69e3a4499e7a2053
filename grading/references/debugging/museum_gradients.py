"""Gradients of three small sharded models as one process has them, and the half repairs of them.

Paper: Korthikanti et al., "Reducing Activation Recomputation" (2022), section 4.2, for a block cut
along tokens; Rajbhandari et al., "ZeRO" (2020), section 5; Fedus et al., "Switch" (2021).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch.nn.functional import gelu, layer_norm, linear

from course_lib.grade.suite import Run

Values = dict[str, torch.Tensor]
Shapes = dict[str, tuple[int, ...]]
CUT = {"up.weight": 0, "up.bias": 0, "down.weight": 1}  # of a block: the dim that tp cuts
WHOLE = ("norm.weight", "norm.bias", "bias")


# --- a block under tensor and sequence parallelism -----------------------------------------------
def block_shapes(hidden: int, inner: int) -> Shapes:
    """Of a whole feed-forward block; the output's bias comes last."""
    return {"norm.weight": (hidden,), "norm.bias": (hidden,), "up.weight": (inner, hidden),
            "up.bias": (inner,), "down.weight": (hidden, inner), "bias": (hidden,)}  # fmt: skip


def part(name: str, whole: torch.Tensor, index: int, size: int) -> torch.Tensor:
    """Of a block's parameter or gradient, what a rank has."""
    return whole.chunk(size, CUT[name])[index] if name in CUT else whole


def block_gradients(values: Values, x_TD: torch.Tensor, weight_TD: torch.Tensor) -> Values:
    """Of the weighted sum of a block's outputs, in float64."""
    v = {name: value.double().requires_grad_() for name, value in values.items()}
    n_TD = layer_norm(x_TD, x_TD.shape[1:], v["norm.weight"], v["norm.bias"])
    y_TD = linear(gelu(linear(n_TD, v["up.weight"], v["up.bias"])), v["down.weight"])
    loss = ((x_TD + y_TD + v["bias"]) * weight_TD).sum()
    return dict(zip(v, torch.autograd.grad(loss, list(v.values())), strict=True))


def total(values: Sequence[torch.Tensor]) -> torch.Tensor:
    """Of equal shapes, their sum."""
    return torch.stack(list(values)).sum(0)


def wrong_sums(grads: Sequence[torch.Tensor], name: str, size: int) -> dict[str, torch.Tensor]:
    """Half repairs of one parameter's gradient, after these micro-batches, on `size` ranks."""
    right = total(grads)
    if name in CUT:
        return {
            "the parts of all ranks were added up: a parameter in CUT differs from rank to rank, "
            "and its gradient is complete without a sum": total(right.chunk(size, CUT[name]))
        }
    known = {
        "this is the mean over tp: the loss is the sum over tokens, and each rank has others": (
            right / size
        )
    }
    if len(grads) > 1:
        known[
            "what the first micro-batch had left was summed over tp once more: sum what is new, "
            "not what has been added up"
        ] = size * total(grads[:-1]) + grads[-1]
    return known


# --- a tied embedding at both ends of a pipeline -------------------------------------------------
class Ends(NamedTuple):
    """A pipeline whose optimizer is cut over the replicas of each stage.

    Attributes:
        pp: stages.
        dp: replicas of each; rank = stage · dp + index.
        grads: of each rank, by name, in the order of its buffer.
    """

    pp: int
    dp: int
    grads: list[Values]

    def __str__(self) -> str:
        return f"dp {self.dp} × pp {self.pp}"

    def other_end(self, rank: int) -> int | None:
        """The rank with the other copy of the embedding; None if there is none."""
        ends = {0: self.pp - 1, self.pp - 1: 0}
        stage, index = divmod(rank, self.dp)
        return ends[stage] * self.dp + index if stage in ends and self.pp > 1 else None

    def mean(self, rank: int, name: str, both: bool = True) -> torch.Tensor:
        """The gradient's mean over the replicas; of the embedding, from both ends or from one."""
        first = rank - rank % self.dp
        ranks = list(range(first, first + self.dp))
        if name == "embedding" and both:
            ranks += [other for each in ranks if (other := self.other_end(each)) is not None]
        return total([self.grads[each][name] for each in ranks]).flatten() / self.dp

    def shard(self, rank: int) -> torch.Tensor:
        """This rank's part of the buffer, zeros behind it included."""
        buffer = torch.cat([self.mean(rank, name) for name in self.grads[rank]])
        padded = torch.cat([buffer, buffer.new_zeros(-len(buffer) % self.dp)])
        return padded.chunk(self.dp)[rank % self.dp]

    def overlaps(self, rank: int) -> list[tuple[str, slice, slice]]:
        """What of which gradient lies where in this rank's shard: name, part of it, place there."""
        length = len(self.shard(rank))
        first, start, found = rank % self.dp * length, 0, []
        for name, grad in self.grads[rank].items():
            low, high = max(start, first), min(start + grad.numel(), first + length)
            if low < high:
                here = slice(low - start, high - start)
                found.append((name, here, slice(low - first, high - first)))
            start += grad.numel()
        return found

    def half_repairs(self, rank: int, name: str, here: slice) -> dict[str, torch.Tensor]:
        """Known wrong gradients of the embedding, in part; those of other names have none."""
        if name != "embedding" or self.other_end(rank) is None:
            return {}
        right = self.mean(rank, name)[here]
        return {
            "this is what one end found: the weight is used twice, and both uses add up": (
                self.mean(rank, name, both=False)[here]
            ),
            "this is the mean of both ends: two uses of one weight add up": right / 2,
            "both ends were added twice": right * 2,
        }

    def sent(self, rank: int, passes: int = 1) -> int:
        """Bytes: a reduce-scatter, or two passes; and an all-reduce of two for the embedding."""
        ends = 0 if self.other_end(rank) is None else self.grads[rank]["embedding"].nbytes
        return passes * (self.dp - 1) * self.shard(rank).nbytes + ends


# --- a mixture of experts ------------------------------------------------------------------------
def mixture_gradients(values: Values, batches: Sequence[Sequence[torch.Tensor]]) -> Values:
    """Of the mean over the ranks of each rank's mean squared error; all experts are here.

    Args:
        values: `router` [E, D] and the experts "0", "1", ... [D, D].
        batches: of each rank, inputs and targets [T, D].
    """
    v = {name: value.double().requires_grad_() for name, value in values.items()}
    losses = []
    for x_TD, target_TD in batches:
        weight_T, chosen_T = linear(x_TD, v["router"]).softmax(-1).max(-1)
        outputs_TED = torch.stack([x_TD @ v[str(e)].t() for e in range(len(v["router"]))], 1)
        chosen_TD = outputs_TED[torch.arange(len(x_TD)), chosen_T]
        losses.append((x_TD + weight_T[:, None] * chosen_TD - target_TD).square().mean())
    gradients = torch.autograd.grad(torch.stack(losses).mean(), list(v.values()))
    return dict(zip(v, gradients, strict=True))


def wrong_scales(right: Values, name: str, ranks: int, ep: int) -> dict[str, torch.Tensor]:
    """Half repairs of one gradient of a mixture, on `ranks` ranks of which `ep` share experts.

    An expert's gradient that is `ep` times too large is the exhibit's fault: it has no sentence.
    """
    if name == "router":
        return {
            "the router is not dealt out: its mean over all ranks was right before": (
                right[name] / ep
            ),
            "this is the sum over all ranks, not the mean": right[name] * ranks,
        }
    own = (len(right) - 1) // ep
    same_place = [right[str(number)] for number in range(int(name) % own, own * ep, own)]
    known = {
        "divided by the ranks of ep once too often": right[name] / ep,
        "different experts were mixed: their gradients may only meet on ranks that hold the same": (
            total(same_place)
        ),
    }
    if ranks != ep:
        known["nothing is divided: the mean over all ranks is asked for"] = right[name] * ranks
    return known


# --- a norm --------------------------------------------------------------------------------------
class Norm(NamedTuple):
    """Gradients of a whole block, of which `tp` ranks have parts."""

    tp: int
    grads: Values

    def parts(self, rank: int) -> Values:
        """A rank's gradients."""
        return {
            name: part(name, grad, rank % self.tp, self.tp) for name, grad in self.grads.items()
        }

    def norm(self, counted: Mapping[str, float] | None = None) -> float:
        """The 2-norm of all, each square counted this often; once if it is not named."""
        counted = counted or {}
        return math.sqrt(
            sum(
                counted.get(name, 1.0) * float(grad.double().square().sum())
                for name, grad in self.grads.items()
            )
        )

    def wrong(self, rank: int) -> dict[str, float]:
        """Half repairs, on one rank."""
        tp = self.tp
        lengths = [Norm(1, self.parts(each)).norm() for each in range(tp)]
        cut = dict.fromkeys(CUT, 1 / tp)
        return {
            "this is the length of this rank's gradients alone: the others have other parts of "
            "the parameters in CUT": lengths[rank % tp],
            "the output's bias is whole on every rank as well, and was counted on all": (
                self.norm({"bias": tp})
            ),
            "all squares were divided by the ranks: of a parameter in CUT each rank has another "
            "part": self.norm(cut),
            "only what is cut was counted": self.norm(dict.fromkeys(WHOLE, 0.0)),
            "the root came before the sum: squares add up, lengths do not": sum(lengths),
        }

    def clipped(self, rank: int, limit: float, norm: float | None = None) -> Values:
        """This rank's gradients, clipped to `limit`, by this norm or by the right one."""
        factor = min(1.0, limit / ((self.norm() if norm is None else norm) + 1e-6))
        return {name: grad * factor for name, grad in self.parts(rank).items()}

    def wrong_clipped(self, rank: int, limit: float) -> dict[str, Values]:
        """Half repairs, on one rank."""
        everywhere = self.norm(dict.fromkeys(WHOLE, self.tp))
        own = Norm(1, self.parts(rank)).norm()
        return {
            "the norm that is returned is right, the one that clips is still the old one": (
                self.clipped(rank, limit, everywhere)
            ),
            "clipped by this rank's own norm: all ranks need the same factor": (
                self.clipped(rank, limit, own)
            ),
            "short gradients were made longer: the factor is at most 1": {
                name: grad * (limit / (self.norm() + 1e-6))
                for name, grad in self.parts(rank).items()
            },
            "not clipped, or not in place": self.parts(rank),
        }


# --- hidden inputs -------------------------------------------------------------------------------
def draw_ends(run: Run, pp: int, dp: int) -> Ends:
    """Random gradients; the embedding is smaller than half of a buffer."""
    wide, words = run.number(4, 7), run.number(5, 8)
    embedding: Shapes = {"embedding": (words, wide)}
    stages: list[Shapes] = []
    for stage in range(pp):
        layers: Shapes = {f"layer {stage}.down": (wide, words + 5),
                          f"layer {stage}.up": (words + 3, wide),
                          f"layer {stage}.bias": (3,)}  # fmt: skip
        last = embedding if stage and stage == pp - 1 else {}
        stages.append({**last, **layers, **({} if stage else embedding)})
    return Ends(
        pp,
        dp,
        [
            {name: run.random(shape) for name, shape in stages[rank // dp].items()}
            for rank in range(pp * dp)
        ],
    )


def draw_norms(run: Run, tp: int, world: int) -> list[tuple[list[Norm], float]]:
    """The gradients of every rank's group, with a limit below their length, and with one above.

    With tp 1 they are in float32, with tp 2 the norm's bias is frozen.
    """
    shapes = block_shapes(run.number(4, 7), tp * run.number(3, 6))
    if tp == 2:
        del shapes["norm.bias"]
    dtype = torch.float32 if tp == 1 else torch.float64
    groups = [
        Norm(tp, {name: run.random(shape, dtype) for name, shape in shapes.items()})
        for _ in range(world // tp)
    ]
    each = [groups[rank // tp] for rank in range(world)]
    longest, shortest = max(group.norm() for group in groups), min(group.norm() for group in groups)
    return [(each, 0.5 * shortest), (each, 3.0 * longest)]
