"""DiLoCo: how far the ranks have moved in H steps is the gradient of an outer optimizer.

Notebook 18. The mean of weights is a step of its own kind: let θ be the weights where the ranks
last met, and w theirs after H steps alone. Then θ - mean(w) points the way back, as a gradient
does, and an optimizer can follow it:

    gradient of θ  =  mean over the group of (θ - w);   one step of the outer optimizer;   w ← θ

Rules
- After construction all ranks have the weights of index 0, and θ is a copy of them.
- `outer(parameters)` makes the outer optimizer. Make it once, of θ: it remembers its momentum.
- `step()` makes one step of `inner`; after step H, 2H, ... it is followed by an outer step, which
  all ranks compute alike.
- What `inner` remembers is neither sent nor changed. Parameters stay the objects that they are.
- A meeting sends 2(N-1)/N·S bytes, S those of the weights. Nothing else is sent.

Free to use: torch, and all of `course_lib.comm`. All parameters are trained.

Your answer may use `comm` of `course_lib`.
"""

from collections.abc import Callable

import torch
from torch import nn

from course_lib.comm import Group, all_reduce, broadcast


class DiLoCo:
    """Local steps, and an outer optimizer that follows their mean.

    Args:
        inner: optimizer of this rank's replica; any of torch's.
        group: the ranks that meet.
        every: H, at least 1.
        outer: makes the outer optimizer from a list of parameters.
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
        raise NotImplementedError("diloco: equal weights, where the ranks have met, and its optimizer")

    @torch.no_grad()
    def step(self) -> None:
        """One step alone, and an outer step if it is time."""
        raise NotImplementedError("diloco: step, and meet")
