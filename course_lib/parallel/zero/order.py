"""In which order a forward has used its units, and so in which order the backward comes to them.

Notebook: 04 ZeRO (FSDPUnit, prefetch).
Paper: Zhao et al., "PyTorch FSDP" (2023), sections 3.3.2 and 4.3.
Costs nothing by itself.
The production version (FSDP2) keeps the same list, and frees a unit when autograd has gone through
a function of its own that it has put before the unit's inputs.

Autograd runs a graph in the reverse of the order in which it was made. So two moments of a forward
are enough to know when the backward needs a unit: when a use of it began, and when it ended.

    a gradient for an output arrives     whatever began after the use had ended is behind us
    a gradient for an input arrives      whatever began with the use, or later, is behind us

A unit may be freed when its first use is behind. Whether its own weights have their gradients does
not matter: a frozen weight never has one, and the backward needs it all the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from course_lib.parallel.zero.unit import Unit


@dataclass(eq=False)
class Use:
    """One call of a unit.

    Attributes:
        unit: that was called.
        order: the forward that it was called in.
        begin: the moment at which it began, counted in that forward.
        end: the moment at which it ended.
        place: how many uses had ended before.
    """

    unit: Unit
    order: Order
    begin: int
    end: int = -1
    place: int = -1


@dataclass(eq=False)
class Order:
    """The uses of one forward.

    Attributes:
        begun: the units in the order in which their uses began.
        ended: uses that a backward comes to, last first, in the order in which they ended.
        first: when the first of those uses of a unit began.
        last: the latest use of each unit.
        now: the latest moment.
    """

    begun: list[Unit] = field(default_factory=list)
    ended: list[Use] = field(default_factory=list)
    first: dict[Unit, int] = field(default_factory=dict)
    last: dict[Unit, Use] = field(default_factory=dict)
    now: int = 0
    _open: list[Use] = field(default_factory=list)

    def begin(self, unit: Unit) -> Use:
        """A unit is about to compute."""
        self.now += 1
        use = Use(unit, self, self.now)
        self.begun.append(unit)
        self._open.append(use)
        self.last[unit] = use
        return use

    def end(self, unit: Unit, *, has_backward: bool) -> Use:
        """A unit has computed; uses inside it that raised, and were caught, end with it."""
        use = self._open.pop()
        while use.unit is not unit:
            use = self._open.pop()
        self.now += 1
        use.end = self.now
        if has_backward:
            use.place = len(self.ended)
            self.ended.append(use)
            self.first[unit] = min(use.begin, self.first.get(unit, use.begin))
        return use

    def computes(self, unit: Unit) -> bool:
        """Whether a use of a unit has begun and not ended: it may be called inside itself."""
        return any(use.unit is unit for use in self._open)
