"""A small data-parallel wrapper, which suites hand to code that must place its synchronisation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import nn

from course_lib.comm import Group, all_reduce


class Replica(nn.Module):
    """Averages gradients when a backward ends, if its forward was made outside `no_sync()`.

    Args:
        module: its parameters all get a gradient, but for those that need none.
        group: the ranks.

    Attributes:
        own: numbers of the ledger's events that are this wrapper's.
    """

    def __init__(self, module: nn.Module, group: Group) -> None:
        super().__init__()
        self.module, self.group = module, group
        self.synchronises = self.captured = True
        self.asked = False
        self.own: list[int] = []
        for parameter in self.trained():
            parameter.register_post_accumulate_grad_hook(self._on_gradient)

    def trained(self) -> list[nn.Parameter]:
        """What needs a gradient."""
        return [p for p in self.module.parameters() if p.requires_grad]

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Remembers whether its backward is to synchronise."""
        self.captured = self.synchronises
        return self.module(inputs)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Forwards inside have backwards that only accumulate."""
        before, self.synchronises = self.synchronises, False
        try:
            yield
        finally:
            self.synchronises = before

    def _on_gradient(self, _: torch.Tensor) -> None:
        if self.captured and not self.asked:
            self.asked = True
            torch.autograd.Variable._execution_engine.queue_callback(self._average)

    def _average(self) -> None:
        self.asked = False
        for parameter in self.trained():
            self.own.append(len(self.group.ledger.events))
            assert parameter.grad is not None
            all_reduce(parameter.grad, self.group, "avg")


def gradient_of(parameter: nn.Parameter) -> torch.Tensor:
    """A copy of its gradient; zeros if there is none."""
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.clone()


def alike(found: Sequence[Sequence[torch.Tensor]], right: Sequence[Sequence[torch.Tensor]]) -> bool:
    """Whether the gradients of all updates are right, so that no slip need be computed."""
    pairs = [
        (a, b)
        for each, other in zip(found, right, strict=False)
        for a, b in zip(each, other, strict=False)
    ]
    return all(a.shape == b.shape and torch.allclose(a, b, 1e-9, 1e-12) for a, b in pairs)
