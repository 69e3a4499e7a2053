"""DiLoCo: what the ranks have moved in H steps is the gradient of an outer optimizer.

Notebook: 18 Less communication (diloco).
Paper: Douillard et al., "DiLoCo: Distributed Low-Communication Training of Language Models" (2023);
the outer optimizer is FedAvgM's, Hsu et al. (2019), with Nesterov's momentum.
Costs 2(N-1)/N·S bytes a rank every H steps, S the bytes of the weights; memory for a copy of the
weights and for the outer momentum.
The production version (OpenDiLoCo, torchft) keeps both on the host, where they have H steps' time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from course_lib.comm import CommError, Group
from course_lib.parallel.flat_mean import FlatMean
from course_lib.parallel.guard import book_until_gone
from course_lib.parallel.local.local_sgd import LocalSGD

MakeOuter = Callable[[list[nn.Parameter]], torch.optim.Optimizer]


def nesterov(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    """The outer optimizer of the paper: SGD with rate 0.7 and Nesterov's momentum of 0.9."""
    return torch.optim.SGD(parameters, lr=0.7, momentum=0.9, nesterov=True)


class DiLoCo(LocalSGD):
    """Local steps, whose mean difference an outer optimizer follows.

    With plain SGD of rate 1 as the outer optimizer it is `LocalSGD`.

    Args:
        inner: any optimizer of whole parameters; the paper's is AdamW.
        group: the ranks that meet.
        every: H, steps between two meetings.
        outer: makes the outer optimizer of the weights where the ranks last met.

    Attributes:
        anchors: the weights where the ranks last met, in the order of `parameters`; equal on all.
        outer: the outer optimizer, whose state is equal on all ranks.

    Raises:
        CommError: H is below 1, the inner optimizer has nothing to train, or the outer one trains
            other tensors than the anchors.
    """

    def __init__(
        self,
        inner: torch.optim.Optimizer,
        group: Group,
        every: int,
        outer: MakeOuter = nesterov,
    ) -> None:
        super().__init__(inner, group, every)
        self.anchors = [nn.Parameter(p.detach().clone()) for p in self.parameters]
        self.outer = outer(self.anchors)
        given = [p for options in self.outer.param_groups for p in options["params"]]
        if set(map(id, given)) != set(map(id, self.anchors)):
            raise CommError(
                f"DiLoCo over {group} with an outer {type(self.outer).__name__}",
                f"{len(given)} tensors in it, where {len(self.anchors)} anchors were given to it",
                "the outer optimizer updates the weights where the ranks last met, all of them",
            )
        book_until_gone(self, group, "parameters", sum(a.nbytes for a in self.anchors))

    @torch.no_grad()
    def synchronize(self) -> None:
        """A meeting now: one outer step, from whose result all ranks go on; collective."""
        moved = [a - p for a, p in zip(self.anchors, self.parameters, strict=True)]
        self._outer_step(range(len(self.anchors)), FlatMean(moved, self.group).wait())
        for parameter, anchor in zip(self.parameters, self.anchors, strict=True):
            parameter.copy_(anchor)

    def state_dict(self) -> dict[str, Any]:
        """This rank's state, with the anchors and the outer optimizer's state."""
        anchors = [anchor.detach().clone() for anchor in self.anchors]
        return {**super().state_dict(), "outer": self.outer.state_dict(), "anchors": anchors}

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads what the same rank has saved."""
        super().load_state_dict(state_dict)
        self.outer.load_state_dict(state_dict["outer"])
        for anchor, saved in zip(self.anchors, state_dict["anchors"], strict=True):
            anchor.copy_(saved)

    def _outer_step(self, numbers: Sequence[int], gradients: Sequence[torch.Tensor]) -> None:
        """Moves some anchors; the others have no gradient, so that they and their momentum stay."""
        for number, gradient in zip(numbers, gradients, strict=True):
            self.anchors[number].grad = gradient
        self.outer.step()
        self.outer.zero_grad()
