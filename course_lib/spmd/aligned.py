"""The ranks' records side by side: one program, so the same operations in the same order.

Notebook: 06 Tensor parallel (types of a distributed tensor).
Source: the definition of SPMD, one program on many data (Darema et al., 1988).
Costs: one walk over the records.
The production version sees one rank and trusts that the others do the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from course_lib.spmd.types import Axis

AHEAD = 40  # operations that a rank may make alone (printing, a branch) before it is given up
COPIES = ("detach", "new_empty_strided", "copy_")  # what a rank may make and another may not
SURE = 3  # operations in a row that show that ranks are together again


Record = dict[str, Any]


def side_by_side(records: Sequence[Record]) -> Iterator[list[Record | None]]:
    """The calls of all ranks, one moment after the other.

    Yields:
        For each rank its call; None where the others do something without it. After ranks have
        parted for more than `AHEAD` calls nothing more comes.
    """
    lists = [record["calls"] for record in records]
    places = [0] * len(lists)
    while all(place < len(calls) for place, calls in zip(places, lists, strict=True)):
        skips = _alone(lists, places)
        if skips is None:
            return
        for rank, count in enumerate(skips):
            for call in lists[rank][places[rank] : places[rank] + count]:
                yield [call if other == rank else None for other in range(len(lists))]
        places = [place + count for place, count in zip(places, skips, strict=True)]
        if not any(skips):
            yield [calls[place] for place, calls in zip(places, lists, strict=True)]
            places = [place + 1 for place in places]
    rests = [calls[place:] for place, calls in zip(places, lists, strict=True)]
    for rank, rest in enumerate(rests if max(map(len, rests)) <= AHEAD else []):
        for call in rest:
            yield [call if other == rank else None for other in range(len(lists))]


def _alone(lists: Sequence[list[Record]], places: Sequence[int]) -> list[int] | None:
    """How many calls each rank makes alone now: none if all do the same; None if they part."""
    pairs = list(zip(places, lists, strict=True))
    if _same([calls[place] for place, calls in pairs]):
        return [0] * len(lists)
    copies = [_copies(calls[place : place + AHEAD]) for place, calls in pairs]
    return copies if any(copies) else _meeting(lists, places)


def _copies(calls: Sequence[Record]) -> int:
    """How many calls in a row only copy: autograd makes them or not, as a gradient is held."""
    names = (call["op"] not in COPIES for call in calls)
    return next((count for count, stops in enumerate(names) if stops), len(calls))


def parting(records: Sequence[Record]) -> str:
    """Where the ranks have parted for good, in words; "" if they have not."""
    count = sum(call is not None for calls in side_by_side(records) for call in calls)
    if count == sum(len(record["calls"]) for record in records):
        return ""
    return "the ranks did different things for longer than can be followed"


def _same(calls: Sequence[Record]) -> bool:
    return (
        len({(call["op"], call["line"], len(call["out"])) for call in map(_hashable, calls)}) == 1
    )


def _hashable(call: Record) -> Record:
    return {**call, "line": tuple(call["line"])}


def _meeting(lists: Sequence[list[Record]], places: Sequence[int]) -> list[int] | None:
    """How many calls each rank makes alone until all are together again; None if they are not."""
    first = lists[0][places[0] : places[0] + AHEAD]
    for ahead in range(len(first)):
        found = [ahead]
        for calls, place in zip(lists[1:], places[1:], strict=True):
            window = range(min(AHEAD, len(calls) - place))
            meets = (n for n in window if _together(lists[0], places[0] + ahead, calls, place + n))
            found.append(next(meets, -1))
        if -1 not in found:
            return found
    return None


def _together(ours: list[Record], at: int, theirs: list[Record], there: int) -> bool:
    """Whether the next calls are the same, as far as there are any."""
    pairs = list(zip(ours[at : at + SURE], theirs[there : there + SURE], strict=False))
    return bool(pairs) and all(_same(pair) for pair in pairs)


def near(sums: Sequence[Any], axis: Axis, tolerance: float) -> bool:
    """Whether what the ranks of each group have is the same up to rounding.

    Args:
        sums: each rank's `checksum`.
        axis: whose groups are compared.
        tolerance: how much their sums may differ, as a part of the sum of absolute values.
    """
    for line in axis.lines:
        totals, sizes = zip(*(sums[rank][2:] for rank in line), strict=True)
        room = tolerance * max(sizes)
        # Not `>=`: a NaN is near nothing.
        if not (max(totals) - min(totals) < room and max(sizes) - min(sizes) < room):
            return False
    return True
