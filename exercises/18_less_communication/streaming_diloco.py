"""Streaming DiLoCo: fragments of the model meet one after the other, behind the next steps.

Notebook 18. DiLoCo sends all weights at once, and everybody waits. Here the parameters are dealt
out to F fragments, which meet in turn. A meeting takes `delay` steps, in which training goes on:

- After step t, fragment f (0, 1, ...) *begins* to meet if (t - f·H//F) mod H = 0: the mean over the
  group of θ - w, for its parameters, is on its way. All of it is what w is at that moment.
- `delay` steps later, after that step, its θ make one outer step with that gradient. Then each of
  its weights becomes keep · w + (1 - keep) · θ.

Rules
- With delay 0 a meeting ends after the step in which it began.
- Between the begin and the end nobody waits: `all_reduce(..., async_op=True)` returns a `Work`, and
  `work.wait()` belongs to the end.
- One outer optimizer for all θ, made once; a parameter whose `.grad` is None keeps its momentum.
- If meetings end after the same step, the one that began first ends first; of those that began
  together, the fragment with the smaller number.

Given is DiLoCo's beginning. Free to use: torch, and all of `course_lib.comm`.

Your answer may use `comm` of `course_lib`.
"""

from collections.abc import Callable, Sequence

import torch
from torch import nn

from course_lib.comm import Group, Work, all_reduce, broadcast


class StreamingDiLoCo:
    """DiLoCo, a fragment at a time.

    Args:
        inner: optimizer of this rank's replica; any of torch's.
        group: the ranks that meet.
        every: H, steps between two meetings of a fragment.
        outer: makes the outer optimizer from a list of parameters.
        fragments: numbers of parameters, in the order of `inner`; each is in one fragment.
        delay: steps that a meeting takes, below H.
        keep: share of this rank's own weights after a meeting.
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
        raise NotImplementedError("streaming_diloco: what is under way")

    @torch.no_grad()
    def step(self) -> None:
        """One step alone; begins the meetings that are due, and ends those that have had time."""
        self.inner.step()
        self.steps += 1
        raise NotImplementedError("streaming_diloco: begin and end meetings")
