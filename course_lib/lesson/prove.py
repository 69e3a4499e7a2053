"""The same training on one process and on N ranks, in float64, and how far they are apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from course_lib.comm import Group, all_reduce
from course_lib.lesson.gap import largest_gap, largest_over
from course_lib.lesson.strategy import (
    InStages,
    Reduces,
    Sharded,
    Strategy,
    backward,
    one_process,
)
from course_lib.model import ModelConfig, Transformer
from course_lib.trace import Refusal

Tensors = dict[str, torch.Tensor]
CONFIG = ModelConfig(layers=2, hidden=32, heads=4, kv_heads=2, ffn=44, sequence=16)
ROWS = 12  # divides by 1, 2, 3 and 4 ranks
RATE = 0.05


@dataclass(frozen=True)
class Gap:
    """How far a strategy is from one process, on the rank where it is farthest.

    Attributes:
        gradients: before the first step, the largest difference as a part of the largest value;
            None where no rank has whole gradients to look at.
        weights: after the last step, the distance of all weights from where they should be, as a
            part of the way that they should have gone.
    """

    gradients: float | None
    weights: float


@dataclass(frozen=True)
class Proof:
    """What `prove` found, the same on every rank; printed, it is a table.

    Attributes:
        gaps: (strategy, optimizer) to its gap.
        steps: how many were made.
    """

    gaps: Mapping[tuple[str, str], Gap]
    steps: int

    @property
    def largest(self) -> float:
        """The largest gap of all."""
        return max(max(gap.gradients or 0.0, gap.weights) for gap in self.gaps.values())

    def __repr__(self) -> str:
        wide = [max(len(names[i]) for names in self.gaps) for i in (0, 1)]
        return "\n".join(
            f"{strategy:<{wide[0]}}  {optimizer:<{wide[1]}}  "
            + ("gradients in parts only, " if gap.gradients is None
               else f"gradients within {gap.gradients:.0e}, ")
            + f"weights after {self.steps} steps within {gap.weights:.0e}"
            for (strategy, optimizer), gap in self.gaps.items()
        )  # fmt: skip


def prove(
    strategies: Mapping[str, Strategy],
    group: Group,
    *,
    optimizers: Sequence[str] = ("SGD", "AdamW"),
    steps: int = 4,
    config: ModelConfig = CONFIG,
    same_batch: bool = False,
) -> Proof:
    """Trains a small transformer with each strategy, and alone, on the same global batches.

    Gradients are compared before the first step, because an optimizer such as Adam divides a wrong
    scale away. float64 leaves only rounding: what is right is within 1e-12, and what is wrong by
    a factor is not. Collective; every rank computes the whole batch alone as well.

    Args:
        strategies: name to strategy.
        group: the ranks that train together; each takes 1/N of the rows of a batch.
        optimizers: names of classes in `torch.optim`.
        steps: how many updates are made.
        config: the transformer's sizes.
        same_batch: every rank gets the whole batch, because the model is cut and not the batch.

    Returns:
        The gaps, the largest over the ranks.

    Raises:
        Refusal: a batch does not divide by the ranks; or they hold parts of the model, and no rank
            holds one of its parameters.
    """
    rows = None if same_batch else group
    if rows is not None and ROWS % rows.size:
        raise Refusal(
            f"a proof on {rows.size} ranks",
            f"{ROWS} rows in a batch",
            "the mean over ranks is that of the batch where all have as many rows",
        )
    gaps = {}
    for optimizer in optimizers:
        make = partial(getattr(torch.optim, optimizer), lr=RATE)
        exact = _train(one_process, None, make, steps, config, None)
        for name, strategy in strategies.items():
            found = _train(strategy, group, make, steps, config, rows)
            for part, whole in zip(found, exact, strict=True):
                _check_whole(part, whole, name, group)
            gradients = _gap(found[0], exact[0], group)
            weights = _off_the_way(found[1], exact[1], config, group)
            gaps[name, optimizer] = Gap(gradients, weights)
    ordered = {(n, o): gaps[n, o] for n in strategies for o in optimizers}
    return Proof(ordered, steps)


def _train(
    strategy: Callable[..., Any],
    group: Group | None,
    make: Any,
    steps: int,
    config: ModelConfig,
    rows: Group | None,
) -> tuple[Tensors, Tensors]:
    """Whole gradients before the first step and whole weights after the last, of this rank."""
    model = Transformer(config).double()
    wrapped, optimizer = strategy(model, group, make)
    first: Tensors = {}
    for step in range(steps):
        optimizer.zero_grad()
        backward(wrapped, *_batch(step, config, rows))
        if step == 0:
            first = _gradients(model, wrapped, optimizer)
        optimizer.step()
    return first, {name: t.detach().clone() for name, t in _weights(model, wrapped).items()}


def _weights(model: nn.Module, wrapped: Any) -> Tensors:
    if isinstance(wrapped, Sharded):
        return wrapped.full_state_dict()
    return dict(wrapped.own) if isinstance(wrapped, InStages) else model.state_dict()


def _batch(
    step: int, config: ModelConfig, group: Group | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """This rank's rows of a step's batch; all of them without a group."""
    generator = torch.Generator().manual_seed(step)
    both = torch.randint(0, config.vocabulary, (ROWS, config.sequence + 1), generator=generator)
    if group is not None:
        both = both.tensor_split(group.size)[group.index]
    return both[:, :-1], both[:, 1:]


def _gradients(model: nn.Module, wrapped: Any, optimizer: Any) -> Tensors:
    """By name; none if the optimizer averages them itself, later and in parts."""
    if isinstance(wrapped, Sharded):
        return wrapped.full_gradients()
    if isinstance(optimizer, Reduces):
        return {}
    held = wrapped.own if isinstance(wrapped, InStages) else dict(model.named_parameters())
    return {n: p.grad.clone() for n, p in held.items() if p.grad is not None}


def _gap(found: Tensors, exact: Tensors, group: Group) -> float | None:
    """None if there is nothing to compare."""
    if not found:
        return None
    return largest_gap(found.values(), [exact[name] for name in found], group)


def _check_whole(found: Tensors, exact: Tensors, strategy: str, group: Group) -> None:
    """Refuses what leaves a parameter out, which no gap would show; nothing at all is seen."""
    if not found:
        return
    there = torch.tensor([float(name in found) for name in exact], device=group.device)
    all_reduce(there, group, "max")
    missing = [name for name, held in zip(exact, there.tolist(), strict=True) if not held]
    if missing:
        raise Refusal(
            f"a proof of {strategy}", f"no rank holds {missing[0]}", "all of the model is compared"
        )


def _off_the_way(found: Tensors, exact: Tensors, config: ModelConfig, group: Group) -> float:
    """The distance from where one process has gone, as a part of how far that was."""
    start = Transformer(config).double().state_dict()
    off = _length([found[name] - exact[name] for name in found])
    way = _length([exact[name] - start[name] for name in found])
    return largest_over(group, off / way).item()


def _length(tensors: list[torch.Tensor]) -> torch.Tensor:
    return torch.stack([tensor.norm() for tensor in tensors]).norm()
