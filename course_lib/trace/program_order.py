"""The calls of several ranks in one row, by what their programs say and not by the clock.

Notebook: 01 Collectives from scratch, 14 Profiling and debugging: every picture of several ranks.
Paper: Lamport, "Time, Clocks, and the Ordering of Events in a Distributed System" (1978).
Costs a look at the next call of every rank, for each call.
The production version sorts by time stamps, and shows another picture after every run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import TypeVar

Call = TypeVar("Call", bound=Hashable)


def program_order(ranks: Sequence[Sequence[Call]]) -> list[Call]:
    """All calls, each once, so that those of every rank stay in their order.

    The same programs give the same row, however the ranks overtook each other. Among calls of which
    none must come first, the one with fewer calls before it does, then the one of the lower rank.
    Ranks that made the same calls in another order cannot all be followed: there the same rule
    decides.

    Args:
        ranks: the calls of each rank, in its order; the same call is equal on all its ranks, and
            stands once in the list of each.
    """
    places = [(call, (n, rank)) for rank, calls in enumerate(ranks) for n, call in enumerate(calls)]
    place = dict(sorted(places, key=lambda item: item[1], reverse=True))  # the first one stays
    left = Counter(call for calls in ranks for call in calls)
    at = [0] * len(ranks)
    found: dict[Call, None] = {}
    while here := [rank for rank, calls in enumerate(ranks) if at[rank] < len(calls)]:
        heads = Counter(ranks[rank][at[rank]] for rank in here)
        free = [call for call, count in heads.items() if count == left[call]]
        first = min(free or heads, key=place.__getitem__)
        found[first] = None
        for rank in here:
            if ranks[rank][at[rank]] == first:
                at[rank], left[first] = at[rank] + 1, left[first] - 1
    return list(found)
