"""Streaming DiLoCo: fragments of the model meet one after the other, behind the steps that follow.

Notebook: 18 Less communication (streaming_diloco).
Paper: Douillard et al., "Streaming DiLoCo with overlapping communication: Towards a Distributed
Free Lunch" (2025), algorithm 2.
Costs the bytes of DiLoCo in as many parts as there are fragments, so that the most in one step is
that of the largest fragment; with a compressor (N-1)·B a rank, B the bytes of its message, which
is more than the all-reduce's from N = 2S/B on: there are few sites.
The production version (torchft) moves each fragment to the host meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from course_lib.comm import CommError, Group
from course_lib.parallel.compress.compressors import Compressor
from course_lib.parallel.compress.gathered_mean import GatheredMean
from course_lib.parallel.flat_mean import FlatMean
from course_lib.parallel.local.diloco import DiLoCo, MakeOuter, nesterov


@dataclass
class _Meeting:
    """A fragment whose mean is under way, and the step after which it is taken."""

    numbers: list[int]
    mean: FlatMean | GatheredMean
    due: int


class StreamingDiLoCo(DiLoCo):
    """DiLoCo, a fragment at a time.

    Fragment f of F begins to meet after each step t with (t - f·H/F) mod H = 0, and takes its outer
    step `delay` steps later. What this rank did with it meanwhile counts with the share `keep`.
    With one fragment and no delay it is `DiLoCo`.

    Args:
        inner: any optimizer of whole parameters.
        group: the ranks that meet.
        every: H, steps between two meetings of a fragment.
        fragments: the trained parameters, each in one of them.
        outer: makes the outer optimizer.
        delay: steps for which a meeting is under way, below H.
        keep: share of the weights on this rank in those after a meeting.
        compressor: for the differences; None to all-reduce them as they are.

    Raises:
        CommError: as DiLoCo, and fragments, delay or share that do not fit.
    """

    def __init__(
        self,
        inner: torch.optim.Optimizer,
        group: Group,
        every: int,
        fragments: Sequence[Sequence[nn.Parameter]],
        outer: MakeOuter = nesterov,
        *,
        delay: int = 0,
        keep: float = 0.0,
        compressor: Compressor | None = None,
    ) -> None:
        super().__init__(inner, group, every, outer)
        self.delay, self.keep, self.compressor = delay, keep, compressor
        places = {parameter: number for number, parameter in enumerate(self.parameters)}
        given = [parameter for fragment in fragments for parameter in fragment]
        if sorted(places.get(p, -1) for p in given) != list(range(len(places))):
            raise CommError(
                f"StreamingDiLoCo over {group} in {len(fragments)} fragments",
                f"{len(given)} parameters in them, of {len(places)} that are trained",
                "each trained parameter is in one fragment",
            )
        if not 0 <= delay < every or not 0 <= keep < 1 or not 1 <= len(fragments) <= every:
            raise CommError(
                f"StreamingDiLoCo over {group} with a delay of {delay} and a share of {keep}",
                f"{every} steps between two meetings of each of {len(fragments)} fragments",
                "0 ≤ delay < steps, 0 ≤ share < 1, and at most one fragment for each step",
            )
        self.fragments = [[places[p] for p in fragment] for fragment in fragments]
        self._under_way: list[_Meeting] = []

    @torch.no_grad()
    def synchronize(self) -> None:
        """All fragments meet now, and nothing stays under way; collective."""
        self._end_meetings()
        for numbers in self.fragments:
            self._begin_meeting(numbers)
        self._end_meetings()
        for parameter, anchor in zip(self.parameters, self.anchors, strict=True):
            parameter.copy_(anchor)

    def state_dict(self) -> dict[str, Any]:
        """As DiLoCo's.

        Raises:
            CommError: a meeting is under way, which no file can hold.
        """
        if self._under_way:
            raise CommError(
                f"the state of a StreamingDiLoCo over {self.group} after step {self.steps}",
                f"{len(self._under_way)} meetings under way",
                "save after a step at which none is, or call synchronize() before",
            )
        return super().state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads what the same rank has saved; meetings under way end, and nothing is taken."""
        for meeting in self._under_way:
            meeting.mean.wait()
        self._under_way.clear()
        super().load_state_dict(state_dict)

    @torch.no_grad()
    def _after_step(self) -> None:
        for number, fragment in enumerate(self.fragments):
            offset = number * self.every // len(self.fragments)
            if (self.steps - offset) % self.every == 0:
                self._begin_meeting(fragment)
        self._end_meetings(self.steps)

    def _begin_meeting(self, numbers: list[int]) -> None:
        moved = [self.anchors[n].detach() - self.parameters[n].detach() for n in numbers]
        if self.compressor is None:
            mean: FlatMean | GatheredMean = FlatMean(moved, self.group)
        else:
            mean = GatheredMean(moved, self.compressor, self.group)
        self._under_way.append(_Meeting(numbers, mean, self.steps + self.delay))

    def _end_meetings(self, until: int | None = None) -> None:
        """Takes the outer steps that are due, in the order in which their meetings began."""
        while self._under_way and (until is None or self._under_way[0].due <= until):
            meeting = self._under_way.pop(0)
            self._outer_step(meeting.numbers, meeting.mean.wait())
            for number in meeting.numbers:
                self.parameters[number].lerp_(self.anchors[number], 1 - self.keep)
