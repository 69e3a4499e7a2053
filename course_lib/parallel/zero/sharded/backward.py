"""One backward of FSDP: gathers units as autograd comes to them, frees and reduces them behind it.

Notebook: 04 ZeRO (FSDPUnit, prefetch).
Paper: Zhao et al., "PyTorch FSDP" (2023), section 4.3: collectives in the reverse order of forward.
Costs an all-gather for each unit that was freed, and a reduce-scatter for each that is trained.
The production version (FSDP2) does both on streams of their own.

All ranks must begin the same collectives in the same order. So a unit that autograd does not come
to on this rank is gathered all the same, in its place, and one whose gradients are not all there
when it is behind stops the reductions until the end of the backward, when it is known what will
never come. The root is around everything and is always last. Where ranks may call different units,
no order of calls is common: then all of this happens at the two ends, in the model's order.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from course_lib.parallel.zero.sharded.order import Order, Use
from course_lib.parallel.zero.sharded.unit import Unit


@dataclass(frozen=True)
class Wanted:
    """How a backward is to go.

    Attributes:
        frees: units behind it.
        synchronises: averages gradients; otherwise they stay, whole and of this rank alone.
        prefetch: begins the next gather before this unit computes.
        at_ends_only: gathers all units at its begin, frees and reduces them at its end, since ranks
            use different ones.
    """

    frees: bool
    synchronises: bool
    prefetch: bool
    at_ends_only: bool


class Backward:
    """What has happened so far in this backward.

    Args:
        units: all of them, the root last.
        wanted: how it is to go.
    """

    def __init__(self, units: Sequence[Unit], wanted: Wanted) -> None:
        self._units, self._root, self._wanted = units, units[-1], wanted
        self._order = Order()
        self._place = self._behind = 0  # in `ended`, and the moment after which all is behind
        self._ahead: list[Unit] = []  # units whose first use is not behind; the next to go is last
        self._waiting: deque[Unit] = deque()  # behind, and not reduced
        self._reduced: list[Unit] = []
        for unit in units:
            if wanted.at_ends_only:
                unit.gather()
            unit.begin_backward()

    # --- on the way ------------------------------------------------------------------------------
    def arrive(self, use: Use) -> None:
        """The first gradient of an output is here: the unit is about to compute its gradients.

        SHARDED, GATHERING → WHOLE, and the next one SHARDED → GATHERING. An output that the unit
        has only handed through gets its gradient when the use is behind already.
        """
        self._turn_to(use.order)
        if use.begin >= self._behind:
            return
        unit = use.unit
        for skipped in self._up_to(use):
            skipped.gather()
        self._set_behind(use.end + 1)
        if unit in self._reduced:  # a second forward in this backward: its gradients come again
            unit.finish_reduce()
            unit.begin_backward()
            self._reduced.remove(unit)
        unit.gather()
        unit.wait()
        if self._wanted.prefetch and self._place > 0:
            self._order.ended[self._place - 1].unit.gather()
        unit.begun = time.monotonic()

    def leave(self, use: Use) -> None:
        """The gradient of an input is here: the backward of this use is behind.

        An input may be what an earlier forward returned: that one has been reached then.
        """
        if use.order is self._order:
            self._set_behind(use.begin)

    def _turn_to(self, order: Order) -> None:
        """Another forward's graph has been reached: all of the one before is behind."""
        if order is not self._order:
            self._set_behind(0)
            self._waiting.clear()  # where both have one sum of gradients, it comes with the second
            self._order = order
            self._place, self._behind = len(order.ended), order.now + 1
            first = sorted(order.first.items(), key=lambda pair: pair[1])
            self._ahead = [unit for unit, _ in first if unit is not self._root]

    def _up_to(self, use: Use) -> list[Unit]:
        """The units that come before a use in the backward, and that autograd has left out here."""
        skipped = self._order.ended[use.place + 1 : self._place]
        self._place = min(self._place, use.place)
        return [other.unit for other in reversed(skipped)]

    def _set_behind(self, moment: int) -> None:
        self._behind = min(self._behind, moment)
        while self._ahead and self._order.first[self._ahead[-1]] >= self._behind:
            self._finish(self._ahead.pop())

    def _finish(self, unit: Unit) -> None:
        """WHOLE → SHARDED → REDUCING, in its turn: nothing in this forward needs it any more."""
        unit.ledger.add_span(f"backward {unit.name}", unit.begun)
        if self._wanted.frees and not self._wanted.at_ends_only:
            unit.free()
        if not self._wanted.synchronises:
            unit.keep_local()
        elif unit.trained and unit not in self._reduced:
            self._waiting.append(unit)
            while not self._wanted.at_ends_only and self._next_is_complete():
                self._reduce(self._waiting.popleft())

    def _next_is_complete(self) -> bool:
        return bool(self._waiting) and self._waiting[0].has_gradients()

    def _reduce(self, unit: Unit) -> None:
        if self._reduced:
            self._reduced[-1].finish_reduce()
        unit.reduce()
        self._reduced.append(unit)

    def take_averages(self) -> None:
        """REDUCING → SHARDED for the last unit that was reduced, if its averages are here."""
        if self._reduced:
            self._reduced[-1].finish_reduce(wait=False)

    # --- at the end ------------------------------------------------------------------------------
    def left(self) -> list[Unit]:
        """Trained units that are not reduced, in an order that all ranks have; the root is last."""
        called = [] if self._wanted.at_ends_only else [*self._waiting, *reversed(self._ahead)]
        known = [*called, *reversed(self._units[:-1]), self._root]
        return [u for u in dict.fromkeys(known) if u.trained and u not in self._reduced]

    def end(self) -> None:
        """Whatever is left: → SHARDED → REDUCING → SHARDED."""
        for unit in (*reversed(self._ahead), self._root):
            unit.ledger.add_span(f"backward {unit.name}", unit.begun)
        for unit in self.left():
            if self._wanted.frees:
                unit.free()
            if self._wanted.synchronises:
                self._reduce(unit)
            else:
                unit.keep_local()
        for unit in self._units:
            if self._wanted.frees:
                unit.free()
            unit.finish_reduce()
