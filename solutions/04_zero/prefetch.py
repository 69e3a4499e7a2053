"""Prefetch: while one unit computes, the all-gathers of the next ones are already under way.

Notebook 04. An FSDP unit that gathers its weights only when it needs them leaves the processor idle
while they travel. But the order in which units compute is known: first to last, then back. So the
all-gathers of the next units can be launched before a unit computes, if there is memory for them.

Write a generator. It goes through `order` and yields each unit with its weights whole, while the
all-gathers of the next units are under way:

    for unit in prefetch([a, b, c, c, b, a], limit=2):
        compute(unit)

Three methods of a unit do the work:

    unit.launch()   allocates memory for the weights and starts the all-gather; returns at once
    unit.wait()     returns when the weights are whole; at once if they already are
    unit.free()     frees that memory

A unit is *in flight* from `launch` to `free`: all that time it holds the memory of its weights.

Rules
- While the unit at place i computes, exactly the first `limit` different units of `order[i:]` are
  in flight: fewer would not overlap, more would not fit. In the example, while `b` computes for the
  first time, these are `b` and `c`; while `c` computes for the second time, `c` and `b`.
- At no time are more than `limit` units in flight, not even between two computations.
- A unit that is in flight and needed next stays in flight: it is not launched again, and not freed
  only to be gathered once more.
- Call `wait` for a unit only when it is its turn: waiting earlier would prevent the overlap.
- Launch units in the order in which they are needed, so that all ranks make the same calls.
- In the end nothing is in flight. `order` may be empty, and units may come in any order, any number
  of times; `limit` is at least 1, and may be larger than the number of units.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol, TypeVar


class Unit(Protocol):
    """Something that can be prefetched."""

    def launch(self) -> None:
        """Starts the all-gather."""

    def wait(self) -> None:
        """Returns when the weights are whole."""

    def free(self) -> None:
        """Frees the memory."""


AnyUnit = TypeVar("AnyUnit", bound=Unit)


def prefetch(order: Sequence[AnyUnit], limit: int) -> Iterator[AnyUnit]:
    """Yields the units of `order`, each when its weights are whole.

    Args:
        order: the units in the order in which they compute; one that computes twice is in it twice.
        limit: how many units may be in flight at the same time.
    """
    # BEGIN SOLUTION
    flight: list[AnyUnit] = []
    for place, unit in enumerate(order):
        wanted = list(dict.fromkeys(order[place:]))[:limit]
        for old in flight:
            if old not in wanted:
                old.free()
        for new in wanted:
            if new not in flight:
                new.launch()
        flight = wanted  # mutate: same
        unit.wait()
        yield unit
    for last in flight:
        last.free()
    # END SOLUTION
