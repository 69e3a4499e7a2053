"""place_ranks: place the ranks of a mesh on nodes so that no node has to send for long.

Notebook 13. This exercise is open: it has no single right answer. Valid placements are compared by
the time of the slowest node.

The ranks are numbered through a mesh of this `shape`, and the last axis runs fastest. Along each
axis of more than one place the ranks form rings: every rank sends sizes[axis] bytes to the next
rank of its ring, and the last sends to the first. Bytes that stay inside a node cost nothing. A
node takes

    bytes that its ranks send to other nodes / rates[node],

and all wait for the slowest node.

You return the node of each rank. A placement is valid if
- exactly `per_node` ranks are on every node;
- two ranks that get the same arguments return the same placement: look at no clock, and seed every
  random generator. All cases of a check together may take 20 s of processor time.

Measured: the slowest node's time, divided by its time if the ranks fill the nodes in order, which
means rank r on node r // per_node; less is better. The figure is the mean over twelve fixed cases.
"""

import random
from collections.abc import Sequence
from itertools import permutations, product


def place_ranks(
    shape: Sequence[int], sizes: Sequence[int], per_node: int, rates: Sequence[int]
) -> list[int]:
    """Chooses a node for each rank.

    Args:
        shape: number of places on each axis of the mesh.
        sizes: for each axis, the bytes that a rank sends along it.
        per_node: number of ranks on each node; per_node · len(rates) is the number of ranks.
        rates: for each node, the bytes per second that can leave it.

    Returns:
        The node of each rank, as an int from 0.
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
    """For each rank the ranks that it talks to, and half of the bytes that the two send each other.

    On a ring, as many bytes enter a node as leave it, so it sends half of the bytes that cross.
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
    """Swaps random ranks of two nodes; at first it also accepts swaps that are a little worse.

    It compares the sum of the times' fourth powers, which small changes affect too; the largest
    time often stays the same.
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
    """The new times of the nodes that are affected if ranks a and b change places."""
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
