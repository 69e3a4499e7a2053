"""A training of a habit: on one process with the whole batch, or on ranks with a part each.

A habit is a function of a `Trainer`. It makes the model, wraps it, trains it in its own way, and
returns what is to be equal. The same lines run in both places.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from course_lib.comm import Group, all_reduce
from course_lib.parallel import FSDP, BucketedDDP, Zero1, Zero2
from tests.parallel.zoo.specimen import WIDTH, bare, mean_square, rows
from tests.parallel.zoo.weights import block

WRAPPERS = ("BucketedDDP", "Zero1", "Zero2", "FSDP")
SHARDED = {"Zero1": Zero1, "Zero2": Zero2}
Schedule = Callable[[torch.optim.Optimizer], Any]


@dataclass(frozen=True)
class Habit:
    """One row.

    Attributes:
        what: it does, for the table in the docs.
        run: does it; returns tensors, in dicts and lists.
        refused: a wrapper's name, and words of its refusal; those not named must be equal.
        close: how far results may be off.
    """

    what: str
    run: Callable[[Trainer], Any]
    refused: dict[str, str] = field(default_factory=dict)
    close: float = 1e-9


class Trainer:
    """What a habit trains with.

    Args:
        wrapper: its name; "" for one process.
        group: the ranks; None for one process.
        count: parts of a batch.
    """

    def __init__(self, wrapper: str, group: Group | None, count: int) -> None:
        self.wrapper, self.group, self.count = wrapper, group, count
        self._unused = False

    def model(self) -> nn.Sequential:
        """Two blocks and a layer, the same on every rank."""
        torch.manual_seed(0)
        return nn.Sequential(block(), block(), nn.Linear(WIDTH, 3)).double()

    def wrap(
        self, model: nn.Module, *, unused: bool = False, keep_whole: Iterable[nn.Parameter] = ()
    ) -> Any:
        """The model under the wrapper; itself where the optimizer is the wrapper."""
        self._unused = unused
        if self.group is not None and self.wrapper == "BucketedDDP":
            return BucketedDDP(model, self.group, cap=300, find_unused_parameters=unused)
        if self.group is not None and self.wrapper == "FSDP":
            units = list(model.children())[:-1]
            return FSDP(
                model, self.group, units, find_unused_parameters=unused, keep_whole=keep_whole
            )
        return model

    def optimizer(
        self, params: Iterable[Any], kind: Callable[..., Any] = torch.optim.Adam, **options: Any
    ) -> Any:
        """An optimizer, sharded where that is the wrapper; Adam with an `eps` as in the zoo."""
        if kind is torch.optim.Adam:
            options = {"lr": 0.02, "eps": 1e-2, **options}
        sharded = SHARDED.get(self.wrapper)
        if sharded is None or self.group is None:
            return kind(list(params), **options)
        return sharded(
            list(params), kind, self.group, cap=300, find_unused_parameters=self._unused, **options
        )

    def batch(self, step: int) -> torch.Tensor:
        """The rows of a step: all of them, or this rank's."""
        if self.group is None:
            return torch.cat([rows(step, part) for part in range(self.count)])
        return rows(step, self.group.index)

    def mean(self, loss: torch.Tensor) -> torch.Tensor:
        """The loss of the whole batch."""
        loss = loss.detach().clone()
        if self.group is not None:
            all_reduce(loss, self.group, "avg")
        return loss

    def backward(self, model: Any, step: int) -> torch.Tensor:
        """A forward and a backward; returns the loss."""
        loss = mean_square(model, self.batch(step))
        loss.backward()
        return loss

    def train(
        self, model: Any, optimizer: Any, steps: Iterable[int] = range(3), schedule: Any = None
    ) -> None:
        """The loop of every tutorial."""
        for step in steps:
            optimizer.zero_grad()
            self.backward(model, step)
            optimizer.step()
            if schedule is not None:
                schedule.step()

    def state(self, model: Any) -> dict[str, torch.Tensor]:
        """Weights and buffers, whole; collective."""
        if isinstance(model, FSDP):
            return model.full_state_dict()
        return {n: t.detach().clone() for n, t in bare(model).state_dict().items()}
