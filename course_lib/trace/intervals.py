"""Stretches of time as sets: what lies in one of them, in both, in one and not in the other.

Notebook: 14 Profiling and debugging (explain_trace): overlapping stretches must not be summed.
Source: the sweep over sorted ends, as in Klee, "Can the measure of ∪[aᵢ, bᵢ] be computed in less
than O(n log n) steps?" (1977).
Costs one sort of n intervals; all the rest is linear.
The production version (Holistic Trace Analysis) does the same over columns of a data frame.

An interval is (begin, end) in seconds. A set of moments is a list of disjoint intervals in order.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

Interval = tuple[float, float]


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """The same moments as disjoint intervals in order; what overlaps or touches becomes one."""
    merged: list[Interval] = []
    for begin, end in sorted(intervals):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((begin, end))
    return merged


def intersect(first: Sequence[Interval], second: Sequence[Interval]) -> list[Interval]:
    """The moments that lie in both of two lists of disjoint intervals in order."""
    both: list[Interval] = []
    a = b = 0
    while a < len(first) and b < len(second):
        begin, end = max(first[a][0], second[b][0]), min(first[a][1], second[b][1])
        if begin < end:
            both.append((begin, end))
        if first[a][1] <= second[b][1]:  # the one that ends first meets nothing more
            a += 1
        else:
            b += 1
    return both


def clip(intervals: Sequence[Interval], begin: float, end: float) -> list[Interval]:
    """The moments of a list that lie between two; costs a search, and what is found."""
    first = bisect_right(intervals, begin, key=lambda interval: interval[1])
    last = bisect_left(intervals, end, key=lambda interval: interval[0])
    return [(max(begin, a), min(end, b)) for a, b in intervals[first:last]] if begin < end else []


def subtract(first: Sequence[Interval], second: Sequence[Interval]) -> list[Interval]:
    """The moments of the first list that do not lie in the second; both disjoint and in order."""
    left: list[Interval] = []
    b = 0
    for begin, end in first:
        while b < len(second) and second[b][1] <= begin:
            b += 1
        at = b  # the last one may reach into the next interval, so `b` stays
        while at < len(second) and second[at][0] < end:
            if begin < second[at][0]:
                left.append((begin, second[at][0]))
            begin = max(begin, second[at][1])
            at += 1
        if begin < end:
            left.append((begin, end))
    return left


def overlap(first: Sequence[Interval], second: Sequence[Interval]) -> float:
    """Seconds that lie in both of two lists of disjoint intervals in order."""
    return length(intersect(first, second))


def length(intervals: Iterable[Interval]) -> float:
    """Seconds that disjoint intervals cover."""
    return sum(end - begin for begin, end in intervals)
