"""Streaming DiLoCo: fragments of the model meet one after another, while training goes on.

Notebook 18. DiLoCo sends all weights at once, and all ranks wait for it. Here the parameters are
divided into F fragments, which meet in turn. A meeting takes `delay` steps, and training goes on
meanwhile:

- After step t, fragment f (0, 1, ...) *begins* to meet if (t - f·H//F) mod H = 0: it starts to
  average θ - w over the group, for its parameters, with the values that w has at that moment.
- The meeting *ends* `delay` steps later, after that step: the fragment's θ take one outer step with
  that gradient. Then each of its weights becomes keep · w + (1 - keep) · θ.

Rules
- Steps count from 1. With a delay of 0, a meeting ends after the step in which it began.
- No rank waits between the beginning and the end: `all_reduce(..., async_op=True)` returns a
  `Work`, and `work.wait()` belongs at the end.
- A meeting sends differences in the parameters' own dtype. The parameters stay the same objects in
  the same memory, and `step` leaves their gradients as they are.
- There is one outer optimizer for all θ, made once; a parameter whose `.grad` is None keeps its
  momentum.
- Several fragments may begin after the same step (if F > H); their meetings end in the order of
  the fragments.

The beginning, as in DiLoCo, is given. You may use torch and all of `course_lib.comm`.
"""

from collections.abc import Callable, Sequence

import torch
from torch import nn

from course_lib.comm import Group, Work, all_reduce, broadcast


class StreamingDiLoCo:
    """DiLoCo, one fragment at a time.

    Args:
        inner: the optimizer of this rank's replica; any optimizer of torch.
        group: the ranks that meet.
        every: H, the steps between two meetings of a fragment.
        outer: makes the outer optimizer of a list of parameters.
        fragments: for each fragment, the indices of its parameters in the order of `inner`; every
            parameter is in exactly one fragment.
        delay: the steps that a meeting takes; less than H.
        keep: the share of this rank's own weights in the mix after a meeting.
    """

    def __init__(
        self,
        inner: torch.optim.Optimizer,
        group: Group,
        every: int,
        outer: Callable[[list[nn.Parameter]], torch.optim.Optimizer],
        fragments: Sequence[Sequence[int]],
        delay: int,
        keep: float,
    ) -> None:
        self.inner, self.group, self.every = inner, group, every
        self.fragments, self.delay, self.keep = fragments, delay, keep
        self.parameters = [p for g in inner.param_groups for p in g["params"]]
        for parameter in self.parameters:
            broadcast(parameter.detach(), 0, group)
        self.anchors = [nn.Parameter(p.detach().clone()) for p in self.parameters]
        self.outer = outer(self.anchors)
        self.steps = 0
        # BEGIN SOLUTION: what is under way
        self.under_way: list[tuple[int, Sequence[int], list[torch.Tensor], list[Work]]] = []
        # END SOLUTION

    @torch.no_grad()
    def step(self) -> None:
        """Takes one step, begins the meetings that are due, and ends those whose delay is over."""
        self.inner.step()
        self.steps += 1
        # BEGIN SOLUTION: begin and end meetings
        for number, fragment in enumerate(self.fragments):
            if (self.steps - number * self.every // len(self.fragments)) % self.every == 0:
                ways = [(self.anchors[n] - self.parameters[n]).detach() for n in fragment]
                works = [all_reduce(way, self.group, "avg", async_op=True) for way in ways]
                self.under_way.append((self.steps + self.delay, fragment, ways, works))
        while self.under_way and self.under_way[0][0] == self.steps:
            _, fragment, ways, waiting = self.under_way.pop(0)
            for work in waiting:
                work.wait()
            for n, way in zip(fragment, ways, strict=True):
                self.anchors[n].grad = way
            self.outer.step()
            self.outer.zero_grad()
            for n in fragment:
                self.parameters[n].lerp_(self.anchors[n], 1 - self.keep)
        # END SOLUTION
