"""place_ranks: which node each rank of a mesh is on, so that no node's adapters have much to send.

Notebook 13. Open: there is no right answer.

Ranks are numbered along a mesh of this `shape`, the last axis fastest. On each axis with more than
one place, every rank sends sizes[axis] bytes to the next rank on that axis, the last to the first.
What stays in a node costs nothing. A node takes

    bytes that its ranks send to other nodes / rates[node],

and all wait for the slowest node.

Valid is a list of each rank's node:
- exactly `per_node` ranks on every node;
- the same on two ranks: no clock, seeded generators; 20 s of processor time in all.

Measured: the slowest node's time over that with ranks in order; the mean of twelve fixed cases.
"""

import random
from collections.abc import Sequence
from itertools import permutations, product


def place_ranks(
    shape: Sequence[int], sizes: Sequence[int], per_node: int, rates: Sequence[int]
) -> list[int]:
    """The node of each rank.

    Args:
        shape: places on each axis.
        sizes: bytes that a rank sends on each axis.
        per_node: ranks on a node.
        rates: bytes per second that leave each node.
    """
    # BEGIN SOLUTION: the nodes
    near = _neighbours(shape, sizes)
    ranks = [*product(*map(range, shape))]
    found = []
    for axes in permutations(range(len(shape))):  # in order, with this order of the axes
        order = sorted(range(len(ranks)), key=lambda r: [ranks[r][axis] for axis in axes])
        home = [0] * len(ranks)
        for place, rank in enumerate(order):
            home[rank] = place // per_node
        found.append(home)
    best = min(found, key=lambda home: max(_times(home, near, rates)))
    return _exchanged(best, near, rates)


def _neighbours(shape: Sequence[int], sizes: Sequence[int]) -> list[dict[int, float]]:
    """For each rank the ranks that it talks to, and half of the bytes that both send.

    On a ring as many bytes enter a node as leave it, so half of all that cross is what it sends.
    """
    ranks = {place: rank for rank, place in enumerate(product(*map(range, shape)))}
    near: list[dict[int, float]] = [{} for _ in ranks]
    for place, rank in ranks.items():
        for axis, count in enumerate(shape):
            if count > 1:
                after = (place[axis] + 1) % count
                other = ranks[(*place[:axis], after, *place[axis + 1 :])]
                for a, b in ((rank, other), (other, rank)):
                    near[a][b] = near[a].get(b, 0) + sizes[axis] / 2
    return near


def _times(home: list[int], near: list[dict[int, float]], rates: Sequence[int]) -> list[float]:
    """How long each node sends."""
    times = [0.0] * len(rates)
    for rank, others in enumerate(near):
        away = sum(size for other, size in others.items() if home[other] != home[rank])
        times[home[rank]] += away / rates[home[rank]]
    return times


def _exchanged(
    home: list[int], near: list[dict[int, float]], rates: Sequence[int], steps: int = 4000
) -> list[int]:
    """Exchanges ranks of two nodes at random; at first also if it makes things a little worse.

    The sum of the times' fourth powers is looked at: unlike the largest it tells small steps apart.
    """
    home, lots = [*home], random.Random(0)
    times = _times(home, near, rates)
    unit = max(times) or 1.0
    best, least = [*home], max(times)
    for step in range(steps):
        a, b = lots.randrange(len(home)), lots.randrange(len(home))
        new = _after(home, times, near, rates, a, b)
        worse = sum(_fourth(new[node] / unit) - _fourth(times[node] / unit) for node in new)
        if worse < 0.3 * (1 - step / steps) ** 2 * lots.random() ** 4:
            home[a], home[b] = home[b], home[a]
            for node, time in new.items():
                times[node] = time
            if max(times) < least * (1 - 1e-9):
                best, least = [*home], max(times)
    return best


def _after(
    home: list[int],
    times: list[float],
    near: list[dict[int, float]],
    rates: Sequence[int],
    a: int,
    b: int,
) -> dict[int, float]:
    """The times of the nodes that change if ranks a and b change places."""
    new: dict[int, float] = {}
    if home[a] != home[b]:
        for rank, old, to in ((a, home[a], home[b]), (b, home[b], home[a])):
            for other, size in near[rank].items():
                if other not in (a, b):
                    for node, more in ((old, -size), (to, size)):
                        if home[other] != node:
                            for end in (node, home[other]):
                                new[end] = new.get(end, times[end]) + more / rates[end]
    return new


def _fourth(x: float) -> float:
    return x * x * x * x
    # END SOLUTION
