"""A rank's tensors, really made: its part of a model, a step of Adam, and what forwards keep.

Paper: Rajbhandari et al., "ZeRO" (2020), section 5; Korthikanti et al. (2022), figures 2 and 4, for
the block whose activations are counted.

The blocks have the matrices of the course's model, cut over tp; a rank's forward is made on the
sizes it would have, with the other ranks' part of a sum left out: how much is kept is the same.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from itertools import accumulate
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from course_lib.layout import Layout
from course_lib.model import ModelConfig, Transformer
from course_lib.schedule import make_schedule
from course_lib.trace.memory import LiveMemory, held_bytes

Weights = dict[str, torch.Tensor]
BY_COLUMNS = ("attention.output", "down")  # matrices whose columns tp cuts, not rows


# --- parameters, gradients, optimizer ------------------------------------------------------------
def cut_model(config: ModelConfig, layout: Layout, stage: int) -> Weights:
    """Tensors of the first rank of tp on a stage, in fp32, each with memory of its own."""
    size, last = config.layers // layout.pp, stage == layout.pp - 1
    cut: Weights = {}
    for name, weight in Transformer(config).named_parameters(remove_duplicate=False):
        inside = name.startswith("blocks.") and int(name.split(".")[1]) // size == stage
        front = stage == 0 and name.startswith("embedding")
        if inside or front or (last and name.startswith(("norm", "head"))):
            dim = 1 if any(word in name for word in BY_COLUMNS) else 0
            part = weight if "norm" in name else weight.chunk(layout.tp, dim)[0]
            cut[name] = part.detach().clone()
    if config.tied and layout.pp == 1:
        cut["head.weight"] = cut["embedding.weight"]
    return cut


def states(config: ModelConfig, layout: Layout, stage: int) -> dict[str, int]:
    """Bytes of parameters, gradients and optimizer after a step of Adam on the rank's piece."""
    tensors = {id(w): w for w in cut_model(config, layout, stage).values()}.values()
    flat = torch.cat([w.flatten() for w in tensors])
    size = -(-flat.numel() // layout.dp)

    def piece(zero: int) -> torch.Tensor:
        return flat[:size].clone() if layout.zero >= zero else flat

    gradient = torch.ones_like(piece(2))
    halves = layout.precision == "bf16" and layout.zero < 3
    parameters = [w.bfloat16() for w in tensors] if halves else [piece(3)]
    own = piece(1) if halves else parameters[0][: size if layout.zero else None]
    updated = torch.nn.Parameter(own)
    updated.grad = gradient[: own.numel()]
    optimizer = torch.optim.AdamW([updated])
    optimizer.step()
    moments = [optimizer.state[updated][name] for name in ("exp_avg", "exp_avg_sq")]
    return {
        "parameters": held_bytes(parameters),
        "gradients": held_bytes([gradient]),
        "optimizer": held_bytes([*moments, *[updated] * halves]),
    }


# --- activations ---------------------------------------------------------------------------------
def kept(config: ModelConfig, layout: Layout, stage: int) -> dict[str, int]:
    """Bytes of all that forwards keep, of as many micro-batches as 1F1B has in flight.

    Made twice, and the less counts: the thread that watches a rank now and then holds frames, and
    with them tensors, for a moment longer than the rank does.
    """
    return {"activations": min(_kept_once(config, layout, stage) for _ in range(2))}


def _kept_once(config: ModelConfig, layout: Layout, stage: int) -> int:
    dtype = torch.bfloat16 if layout.precision == "bf16" else torch.float32
    weights = cut_model(config, layout, stage)
    rank = _Forward(config, layout, {n: w.to(dtype).requires_grad_() for n, w in weights.items()})
    shape = (
        layout.micro_batch_size,
        config.sequence // (layout.tp if layout.sequence else 1),
        config.hidden,
    )
    with LiveMemory() as live:
        inputs = (torch.ones(shape, dtype=dtype) for _ in range(_in_flight(layout, stage)))
        graphs = [rank(x.requires_grad_(), last=stage == layout.pp - 1) for x in inputs]
        gc.collect()  # what nothing holds but a circle of references is not kept
        return live.now if graphs else 0


def _in_flight(layout: Layout, stage: int) -> int:
    """The most forwards without their backward, in the stage's list of actions."""
    actions = make_schedule("1F1B", layout.pp, layout.micro_batches).actions[stage]
    return max(accumulate(1 if action.kind == "F" else -1 for action in actions))


class _Forward:
    """A stage's forward on one rank of tp, which keeps what fused kernels keep."""

    def __init__(self, config: ModelConfig, layout: Layout, weights: Weights) -> None:
        self.config, self.layout, self.weights = config, layout, weights
        self.targets = torch.zeros(layout.micro_batch_size * config.sequence, dtype=torch.int64)

    def __call__(self, x: torch.Tensor, *, last: bool) -> object:
        """All blocks, and the head; returns the end of the graph, without the values there."""
        blocks = {n.rpartition("attention_")[0] for n in self.weights if "attention_norm" in n}
        for name in sorted(blocks):
            full = self.layout.recompute == "full"
            x = _again(self._block, x, name) if full else self._block(x, name)
        if not last:
            return x.grad_fn
        (logits,) = self._products(self._norm(x, ""), "head")
        return F.cross_entropy(logits.flatten(0, 1).float(), self.targets).grad_fn

    def _block(self, x: torch.Tensor, name: str) -> torch.Tensor:
        attention, network = f"{name}attention", f"{name}ffn"
        into = (f"{attention}.{part}" for part in ("query", "key", "value"))
        q, k, v = self._products(self._norm(x, f"{attention}_"), *into)
        attend = _again if self.layout.recompute == "selective" else _call
        x = x + self._out(attend(self._attend, q, k, v), f"{attention}.output")
        rows = self._norm(x, f"{network}_")
        if self.config.gated:
            inner = _again(_swiglu, *self._products(rows, f"{network}.gate", f"{network}.up"))
        else:
            (up,) = self._products(rows, f"{network}.up")
            inner = F.gelu(up)
        return x + self._out(inner, f"{network}.down")

    def _norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return F.layer_norm(x, x.shape[-1:], self.weights[f"{name}norm.weight"])

    def _products(self, x: torch.Tensor, *names: str) -> tuple[torch.Tensor, ...]:
        """Into a region; with `sequence` gathered from all ranks, and again in the backward."""

        def gathered(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            whole = x.repeat(1, self.layout.tp, 1) if self.layout.sequence else x
            return tuple(F.linear(whole, self.weights[f"{name}.weight"]) for name in names)

        return (_again if self.layout.sequence else _call)(gathered, x)

    def _out(self, x: torch.Tensor, name: str) -> torch.Tensor:
        """Out of a region: the sum over tp, of which a rank keeps its tokens; and dropout."""
        x = F.linear(x, self.weights[f"{name}.weight"])
        if self.layout.sequence:
            x = x.chunk(self.layout.tp, 1)[0].clone()
        return torch.native_dropout(x, 0.1, True)[0]

    def _attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Attention with its matrix of T×T; query heads that share keys lie below each other."""
        rows, length, width = *q.shape[:2], self.config.head_width
        k, v = (t.view(rows, length, -1, width).transpose(1, 2) for t in (k, v))
        shape = (rows, k.shape[1], -1, width)
        q = q.view(rows, length, k.shape[1], -1, width).permute(0, 2, 3, 1, 4).reshape(shape)
        scores = torch.softmax(q @ k.transpose(2, 3), -1)
        out = torch.native_dropout(scores, 0.1, True)[0] @ v
        return out.view(rows, -1, length, width).transpose(1, 2).reshape(rows, length, -1)


def _call(function: Callable[..., Any], *args: Any) -> Any:
    return function(*args)


def _again(function: Callable[..., Any], *args: Any) -> Any:
    """Keeps the arguments alone."""
    return checkpoint(function, *args, use_reentrant=False)


def _swiglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """One kernel: it keeps its two inputs."""
    return F.silu(gate) * up
