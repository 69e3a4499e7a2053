"""DiLoCo: the distance that the ranks have moved in H steps is the gradient of an outer optimizer.

Notebook 18. Averaging weights can be seen as an optimizer step. Let θ be the weights at which the
ranks last met, and w a rank's weights after H steps alone. Then θ - mean(w) points backwards, as a
gradient does, and an optimizer can take a step with it:

    gradient of θ  =  mean over the group of (θ - w);   one step of the outer optimizer;   w ← θ

Rules
- After construction, all ranks have the weights of index 0, and θ is a copy of them.
- `outer(parameters)` makes the outer optimizer of a list of parameters. Call it once, with θ,
  because the optimizer keeps its momentum.
- `step()` takes one step of `inner`. After step H, 2H, ... an outer step follows, which all ranks
  compute alike.
- The state of `inner` is neither sent nor changed. The parameters, which may be strided, stay the
  same objects in the same memory, and `step` leaves their gradients as they are. A parameter
  without a gradient meets too.
- A meeting sends 2(N-1)/N·S bytes from each rank, where S is the size of the weights. Nothing else
  is sent.

All parameters are trained. You may use torch and all of `course_lib.comm`.
"""

from collections.abc import Callable

import torch
from torch import nn

from course_lib.comm import Group, all_reduce, broadcast


class DiLoCo:
    """Local steps, and an outer optimizer that follows their mean.

    Args:
        inner: the optimizer of this rank's replica; any optimizer of torch.
        group: the ranks that meet.
        every: H, the steps between two meetings; at least 1.
        outer: makes the outer optimizer of a list of parameters.
    """

    def __init__(
        self,
        inner: torch.optim.Optimizer,
        group: Group,
        every: int,
        outer: Callable[[list[nn.Parameter]], torch.optim.Optimizer],
    ) -> None:
        self.inner, self.group, self.every = inner, group, every
        self.parameters = [p for g in inner.param_groups for p in g["params"]]
        # BEGIN SOLUTION: equal weights, where the ranks have met, and its optimizer
        self.steps = 0
        for parameter in self.parameters:
            broadcast(parameter.detach(), 0, group)
        self.anchors = [nn.Parameter(p.detach().clone()) for p in self.parameters]
        self.outer = outer(self.anchors)
        # END SOLUTION

    @torch.no_grad()
    def step(self) -> None:
        """Takes one step of this rank alone, and an outer step when one is due."""
        # BEGIN SOLUTION: step, and meet
        self.inner.step()
        self.steps += 1
        if self.steps % self.every:
            return
        for parameter, anchor in zip(self.parameters, self.anchors, strict=True):
            anchor.grad = anchor - parameter
            all_reduce(anchor.grad, self.group, "avg")
        self.outer.step()
        for parameter, anchor in zip(self.parameters, self.anchors, strict=True):
            parameter.copy_(anchor)
        # END SOLUTION
