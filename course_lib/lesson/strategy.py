"""A data-parallel strategy as one function, and the training step that all of them share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol, runtime_checkable

import torch
from torch import nn

from course_lib.comm import Group
from course_lib.model import cross_entropy

MakeOptimizer = Callable[[Iterable[Any]], Any]


class Strategy(Protocol):
    """Lays a model out over a group: wraps the model, the optimizer, or both."""

    def __call__(self, model: nn.Module, group: Group, make: Callable[..., Any]) -> tuple[Any, Any]:
        """Returns the model to call and the optimizer to step.

        Args:
            model: whole and equal on every rank; may be changed.
            group: the ranks that train together.
            make: makes an optimizer from parameters, as `torch.optim.AdamW` does.
        """


@runtime_checkable
class Synchronizes(Protocol):
    """A model whose gradients are averaged by a call after the backward, as in `NaiveDDP`."""

    def synchronize(self) -> None:
        """Averages the gradients over the ranks."""


@runtime_checkable
class Reduces(Protocol):
    """An optimizer that averages the gradients in its step, of which a rank keeps a part."""

    def shard(self) -> list[nn.Parameter]:
        """This rank's pieces of the parameters."""


@runtime_checkable
class Sharded(Protocol):
    """A model of which no rank has the whole, as in `FSDP`."""

    def full_gradients(self) -> dict[str, torch.Tensor]:
        """All gradients whole, by name; collective."""

    def full_state_dict(self) -> dict[str, torch.Tensor]:
        """All weights whole, by name; collective."""


@runtime_checkable
class InStages(Protocol):
    """A model of which a rank has some whole parameters, as in a pipeline; it runs every backward.

    Attributes:
        own: this rank's parameters, by the whole model's names.
    """

    own: dict[str, nn.Parameter]

    def forward_backward(self, inputs: torch.Tensor, targets: torch.Tensor) -> float:
        """Adds the gradients of the mean loss of a whole batch; its loss, on every rank."""


def one_process(
    model: nn.Module, group: Group | None, make: Callable[..., Any]
) -> tuple[nn.Module, Any]:
    """The strategy that others are compared with: no wrapper, the whole batch."""
    return model, make(model.parameters())


def backward(model: Any, inputs: torch.Tensor, targets: torch.Tensor) -> float:
    """Gradients of the mean loss, averaged over the ranks; returns this rank's loss.

    Args:
        model: called with the inputs; what it returns are logits [B, T, V]. If it is in stages, it
            is given the batch instead.
        inputs: this rank's tokens, int64 [B, T].
        targets: the tokens that follow, int64 [B, T].
    """
    if isinstance(model, InStages):
        return model.forward_backward(inputs, targets)
    loss = cross_entropy(model(inputs), targets)
    loss.backward()
    if isinstance(model, Synchronizes):
        model.synchronize()
    return loss.item()


def train_step(model: Any, optimizer: Any, inputs: torch.Tensor, targets: torch.Tensor) -> float:
    """One update on this rank's part of the batch; returns this rank's loss."""
    optimizer.zero_grad()
    loss = backward(model, inputs, targets)
    optimizer.step()
    return loss
