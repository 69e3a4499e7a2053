"""A training of a small mixture of experts in one process, and what a rank of a mesh has of it.

Paper: Narayanan et al., "Megatron-LM" (2021), section 3; Fedus et al., "Switch" (2021), 2.2.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Sequence
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F

from course_lib.comm import coordinates
from course_lib.model import (
    AdamW,
    ModelConfig,
    MoEConfig,
    Transformer,
    auxiliary_loss,
    update_router_bias,
)
from course_lib.trace.memory import held_bytes

IGNORED = -100
AXES = ("pp", "dp", "ep", "tp")
Values = dict[str, torch.Tensor]
Batch = tuple[torch.Tensor, torch.Tensor]  # inputs and targets, int64 [B, T]


class Step(NamedTuple):
    """What one process says of a step, and has after it."""

    loss: float
    tokens: int
    norm: float
    weights: Values


def build(shape: dict[str, Any], scale: float = 8) -> Transformer:
    """A model whose matrices are large enough for its blocks and routers to matter."""
    moe = MoEConfig(**shape["moe"]) if shape["moe"] else None
    model = Transformer(ModelConfig(**{**shape, "moe": moe}), seed=3).double()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.mul_(scale)
    return model


# --- one process ---------------------------------------------------------------------------------
class Alone:
    """A training that nobody cuts.

    Args:
        shape: of the model.
        micro_batches: in a step; experts' auxiliary losses depend on them.
        lr: of AdamW.
        max_norm: gradients are clipped to.
        skips: what an update leaves as it is: `biases` of the routers, `experts` or `others`.
        scale: of matrices, as for `build`.
    """

    def __init__(
        self,
        shape: dict[str, Any],
        micro_batches: int,
        lr: float,
        max_norm: float,
        *,
        skips: str = "",
        scale: float = 8,
    ) -> None:
        self.model = build(shape, scale)
        self.optimizer = AdamW(self.model.parameters(), lr=lr)
        self.micro_batches, self.max_norm, self.skips = micro_batches, max_norm, skips
        self.lr = lr

    def step(self, inputs: torch.Tensor, targets: torch.Tensor) -> Step:
        """Makes an update."""
        tokens = int((targets != IGNORED).sum())
        equal_B = torch.full((len(inputs),), 1 / tokens, dtype=torch.float64)
        losses = self.backward(inputs, targets, equal_B)
        norm = float(torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.max_norm))
        for name, parameter in self.model.named_parameters():
            if self.skips == ("experts" if is_expert(name) else "others"):
                parameter.grad = None
        self.optimizer.step()
        if self.skips != "biases":
            update_router_bias(self.model)
        weights = {name: p.detach().clone() for name, p in self.model.named_parameters()}
        return Step(float(losses.sum()) / tokens, tokens, norm, weights)

    def lose(self, what: str) -> None:
        """Forgets what a state may lack: `biases` of the routers, or `moments` of AdamW."""
        if what == "biases":
            for buffer in self.model.buffers():
                buffer.zero_()
        if what == "moments":
            self.optimizer = AdamW(self.model.parameters(), lr=self.lr)

    def backward(
        self,
        inputs: torch.Tensor,
        targets: torch.Tensor,
        weights_B: torch.Tensor,
        auxiliary: float | None = None,
        groups: Sequence[torch.Tensor] | None = None,
    ) -> torch.Tensor:
        """Leaves gradients of the rows' weighted losses; returns these without weights, [B].

        Args:
            inputs: [B, T].
            targets: [B, T].
            weights_B: of each row's sum over its counted tokens.
            auxiliary: weight of each micro-batch's auxiliary losses; 1/m if None.
            groups: numbers of the rows of each micro-batch; by `tensor_split` if None.
        """
        self.optimizer.zero_grad()
        aside = 1 / self.micro_batches if auxiliary is None else auxiliary
        losses_B = torch.zeros(len(inputs), dtype=torch.float64)
        for rows in groups or torch.arange(len(inputs)).tensor_split(self.micro_batches):
            logits, right = self.model(inputs[rows]).flatten(0, 1), targets[rows].flatten()
            losses = F.cross_entropy(logits, right, reduction="none", ignore_index=IGNORED)
            sums = losses.view(len(rows), -1).sum(1)
            side = auxiliary_loss(self.model) * aside
            ((sums * weights_B[rows]).sum() + side).backward()
            losses_B[rows] = sums.detach()
        return losses_B

    def squares(self) -> Values:
        """Of the gradients, by name, added up."""
        return {
            n: p.grad.square().sum() for n, p in self.model.named_parameters() if p.grad is not None
        }


# --- what a rank has of it -----------------------------------------------------------------------
class Grid:
    """Who has what on pp × dp × ep × tp, for a model with as many blocks as stages, or one stage.

    Args:
        sizes: of the axes.
        shape: of the model.
    """

    def __init__(self, sizes: dict[str, int], shape: dict[str, Any]) -> None:
        self.sizes, self.shape = sizes, shape
        self.world = math.prod(sizes.values())
        self.words = " × ".join(f"{axis} {size}" for axis, size in sizes.items() if size > 1)
        self.rows = sizes["dp"] * sizes["ep"]

    def place(self, rank: int) -> dict[str, int]:
        """Its place on each axis."""
        return coordinates(rank, self.sizes)

    def where(self, rank: int) -> str:
        """For messages."""
        place = self.place(rank)
        at = ", ".join(f"{axis} {index}" for axis, index in place.items() if self.sizes[axis] > 1)
        return f"({self.words}; at {at})"

    def own_rows(self, rank: int, count: int, micro_batches: int) -> torch.Tensor:
        """Numbers of the rows that a rank works on, of all micro-batches."""
        place = self.place(rank)
        index = place["dp"] * self.sizes["ep"] + place["ep"]
        parts = torch.arange(count).tensor_split(micro_batches)
        return torch.cat([part.tensor_split(self.rows)[index] for part in parts])

    def held(self, values: Values, rank: int) -> Values:
        """A rank's part of the whole model's values."""
        place, found = self.place(rank), {}
        for name, value in values.items():
            if place["pp"] in self.stages(name) and self._has_expert(name, place["ep"]):
                dim = self.cut_dim(name, value)
                cut = value.tensor_split(self.sizes["tp"], dim) if dim is not None else ()
                found[name] = cut[place["tp"]] if cut else value
        return found

    def stages(self, name: str) -> set[int]:
        """Where a parameter is."""
        last = self.sizes["pp"] - 1
        if name.startswith("blocks."):
            return {min(last, int(name.split(".")[1]))}
        if name.startswith("embedding"):
            return {0, last} if self.shape["tied"] else {0}
        return {last}

    def cut_dim(self, name: str, value: torch.Tensor) -> int | None:
        """Which dim tensor parallelism cuts; None if all ranks of tp have the whole."""
        if value.dim() != 2 or "router" in name:
            return None
        if "key" in name or "value" in name:  # heads are not cut
            return None if self.shape["kv_heads"] < self.sizes["tp"] else 0
        return 1 if name.endswith(("output.weight", "down.weight")) else 0

    def _has_expert(self, name: str, index: int) -> bool:
        if not is_expert(name):
            return True
        parts = torch.arange(self.shape["moe"]["experts"]).tensor_split(self.sizes["ep"])
        return int(name.split("experts.")[1].split(".")[0]) in parts[index].tolist()


def is_expert(name: str) -> bool:
    """Whether a parameter is an expert's; a router's is none."""
    return ".experts." in name


# --- what is kept --------------------------------------------------------------------------------
def kept_bytes(root: Any) -> int:
    """Bytes of all tensors that can be reached from an object, each storage once.

    Gradients belong to it. What functions and classes of modules see is left out.
    """
    seen: dict[int, Any] = {}
    todo, tensors = [root], []
    while todo:
        each = todo.pop()
        if id(each) in seen or isinstance(each, ModuleType | type):
            continue
        seen[id(each)] = each  # alive, so that no other object gets its number
        if isinstance(each, torch.Tensor):
            tensors.append(each)
            todo += [each.grad, *vars(each).values()] if each.is_leaf else []
        else:
            todo += _referents(each)
    return held_bytes(tensors)


def _referents(each: Any) -> Sequence[Any]:
    if isinstance(each, FunctionType):
        return [*(each.__closure__ or ()), *(each.__defaults__ or ())]
    return gc.get_referents(each)
