"""One backward of FSDP: which units are complete, and in which order they are reduced.

Notebook: 04 ZeRO (FSDPUnit, prefetch).
Paper: Zhao et al., "PyTorch FSDP" (2023), section 4.3: collectives in the reverse order of forward.
Costs nothing by itself; a unit that is complete early waits, with full gradients, for its turn.
The production version (FSDP2) reduces what a unit has after each use, and adds it to the shard.

A unit's gradients are all there when backward has come to every use of it and each parameter has
its own. Both must be looked at. A block that is used twice has one sum of gradients, made when the
second is there; unless it computes in another dtype than it is kept in, and was freed and gathered
in between: then autograd sees two tensors, and the sum comes in two parts. The root is around
everything, so it is reduced last, at the end of the backward.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence

from torch import nn

from course_lib.comm import CommError
from course_lib.parallel.zero.unit import Unit


class ReduceOrder:
    """What has happened so far in this backward.

    Args:
        order: the units as forward has used them, each as often as it was used; the root first.
        rank: for errors.

    Attributes:
        units: those that are trained, in the order in which all ranks reduce them: backward ends
            with what forward used first.
        used: parameters of complete units that have a gradient on this rank.
    """

    def __init__(self, order: Sequence[Unit], rank: int) -> None:
        self.units = [unit for unit in reversed(dict.fromkeys(order)) if unit.trained]
        self.used: set[nn.Parameter] = set()
        self._rank = rank
        self._root, self._uses_left = order[0], Counter(order)
        self._begun: set[object] = set()
        self._complete: set[Unit] = set()
        self._reduced: list[Unit] = []

    def begin(self, unit: Unit, use: object) -> None:
        """The first gradient of some output of a unit is here.

        Args:
            unit: that is about to compute its gradients.
            use: the same for all outputs of one call of it.
        """
        unit.begin_backward()
        if use not in self._begun:
            self.refuse_late(unit)
            self._begun.add(use)
            self._uses_left[unit] -= 1
            unit.pending = set(unit.trained)

    def is_complete(self, unit: Unit) -> bool:
        """Whether nothing more can come; for the root only the end of the backward says so."""
        return unit is not self._root and not unit.pending and self._uses_left[unit] <= 0

    def add_complete(self, unit: Unit) -> None:
        """All gradients of a unit are there, or will not come."""
        self._complete.add(unit)
        self.used |= {p for p in unit.trained if p.grad is not None}

    def reduce(self) -> None:
        """Begins to reduce what is complete and has no other before it."""
        waiting = self.units[len(self._reduced) :]
        for following in itertools.takewhile(self._complete.__contains__, waiting):
            if self._reduced:
                self._reduced[-1].finish_reduce()
            following.reduce()
            self._reduced.append(following)

    def take_averages(self) -> None:
        """Gives back the buffers of the last reduction, if it is done."""
        if self._reduced:
            self._reduced[-1].finish_reduce(wait=False)

    def left(self) -> list[Unit]:
        """Units that are not complete."""
        return [unit for unit in self.units if unit not in self._complete]

    def refuse_late(self, unit: Unit) -> None:
        """Refuses a gradient that would be added to an average, or lost.

        Raises:
            CommError: the unit has been reduced.
        """
        if unit in self._reduced:
            raise CommError(
                f"a gradient for {unit.name} of FSDP on rank {self._rank}",
                "the sum of its gradients has been sent already, in this backward",
                "two forwards in low precision, or a backward inside another: give each forward "
                "a backward of its own",
            )
