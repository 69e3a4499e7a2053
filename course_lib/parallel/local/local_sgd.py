"""Local SGD: every rank trains alone for some steps, then all take the mean of their weights.

Notebook: 18 Less communication (local_sgd).
Paper: Stich, "Local SGD Converges Fast and Communicates Little" (2019); McMahan et al.,
"Communication-Efficient Learning of Deep Networks from Decentralized Data" (2017), for averaging.
Costs 2(N-1)/N·S bytes a rank every H steps, S the bytes of the weights, so 1/H of DDP's a step;
at the start one broadcast of the weights.
The production version (torch.distributed.algorithms.model_averaging) begins with steps of DDP.

Moments of the inner optimizer stay with their rank: they follow its own gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from course_lib.comm import CommError, Group, broadcast
from course_lib.parallel.flat_mean import FlatMean


class LocalSGD:
    """Steps an optimizer on this rank alone, and meets the others every so many steps.

    Gradients are this rank's own: do not wrap the model in DDP. Schedules, clipping and parameter
    groups are those of the inner optimizer. All ranks must make the same number of steps; buffers
    of the model stay each rank's own.

    Args:
        inner: any optimizer of whole parameters.
        group: the ranks that meet.
        every: H, steps between two meetings.

    Attributes:
        steps: how many inner steps were made.

    Raises:
        CommError: H is below 1, or the optimizer has nothing to train; in a step, it trains a
            parameter that was not there, or was frozen.
    """

    def __init__(self, inner: torch.optim.Optimizer, group: Group, every: int) -> None:
        self.inner, self.group, self.every = inner, group, every
        self.steps = 0
        self.parameters = self._trained()
        if every < 1 or not self.parameters:
            raise CommError(
                f"{type(self).__name__} over {group}, which meets every {every} steps",
                f"{len(self.parameters)} parameters that are trained",
                "there must be a step between two meetings, and something to take the mean of",
            )
        for parameter in self.parameters:
            broadcast(parameter.detach(), 0, group)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One inner step, and a meeting if it is time; returns the closure's loss."""
        self._refuse_later()
        loss = self.inner.step(closure) if closure else self.inner.step()
        self.steps += 1
        self._after_step()
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets the gradients, as the inner optimizer does."""
        self.inner.zero_grad(set_to_none)

    @torch.no_grad()
    def synchronize(self) -> None:
        """A meeting now: all weights become the mean. Call it before a model is saved; collective.

        It does not move the next meeting.
        """
        for parameter, mean in zip(
            self.parameters, FlatMean(self.parameters, self.group).wait(), strict=True
        ):
            parameter.copy_(mean)

    def state_dict(self) -> dict[str, Any]:
        """This rank's state; the moments of the inner optimizer differ from rank to rank."""
        return {"inner": self.inner.state_dict(), "steps": self.steps}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads what the same rank has saved."""
        self.inner.load_state_dict(state_dict["inner"])
        self.steps = state_dict["steps"]

    def _trained(self) -> list[nn.Parameter]:
        given = [p for options in self.inner.param_groups for p in options["params"]]
        return [p for p in given if p.requires_grad]

    def _refuse_later(self) -> None:
        later = set(self._trained()) - set(self.parameters)
        if later:
            raise CommError(
                f"a step of {type(self).__name__} over {self.group}",
                f"{len(later)} parameters that were frozen, or not there, when it was made",
                "no meeting would take their mean: make it again after a change of what is trained",
            )

    def _after_step(self) -> None:
        if self.steps % self.every == 0:
            self.synchronize()
