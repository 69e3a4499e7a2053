"""How long a collective takes, by α and β, when some of its ranks share a node.

Notebook: 01 Collectives from scratch (the crossover), 15 Choosing a strategy (step_time).
Paper: Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication Operations in
MPICH" (2005), section 4, for each algorithm on one kind of link; NVIDIA/nccl-tests, PERFORMANCE.md.
Costs nothing: arithmetic on two links.
The production version knows protocols, channels and switches that add numbers up on their way.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from course_lib.plan.inputs.hardware import Cluster
from course_lib.trace import Refusal

OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send")
# Which algorithms each operation has. Rings move the least, trees and halving take fewer steps.
ALGORITHMS = {
    "all_reduce": ("ring", "tree", "halving-doubling", "hierarchical", "switch"),
    "all_gather": ("ring", "halving-doubling", "hierarchical"),
    "reduce_scatter": ("ring", "halving-doubling", "hierarchical"),
    "all_to_all": ("pairwise",),
    "broadcast": ("ring", "tree"),
    "send": ("direct",),
}
# What NCCL chooses from, by size; the others are for comparison, and for our own.
LIBRARY = {"all_reduce": ("ring", "tree", "switch")}
TREE = 0.92  # of a ring's bandwidth reaches a pair of trees: NVIDIA/nccl, src/graph/tuning.cc


@dataclass(frozen=True)
class Span:
    """A group of ranks as it lies in the nodes.

    Attributes:
        size: N, ranks of the group.
        local: g, how many of them are in each node, on average.
        adapters: of each node that are the group's own; 0 means as many as its part of the node's
            GPUs, because other groups like it send at the same time.
    """

    size: float
    local: float
    adapters: float = 0.0

    @property
    def nodes(self) -> int:
        """How many nodes it spans."""
        return math.ceil(self.size / self.local)


def span(size: int, stride: int, cluster: Cluster) -> Span:
    """The group of every `stride`-th rank: how many of them a node holds.

    Args:
        size: N, ranks of the group.
        stride: distance of neighbours, which is the product of the axes inside.
        cluster: for the size of a node.
    """
    return Span(size, max(1, min(size, cluster.node // stride)))


def _log2(count: float) -> int:
    return math.ceil(math.log2(count)) if count > 1 else 0


def ring_bandwidth(group: Span, cluster: Cluster) -> float:
    """Bytes/s of a ring through all nodes.

    A library runs as many rings at once as the group has adapters in a node, each of which leaves
    the node through another one. So a group of whole nodes leaves each of them through all adapters
    (8 · 46 GB/s where there are 8 H100), a ring over one GPU of each node through one; but never
    more than pass inside.
    """
    inside = cluster.inside.among(group.local)
    if group.nodes == 1:
        return inside
    outer = cluster.leaving(group.local, group.adapters)
    return min(inside, outer) if group.local > 1 else outer


def _ring(passes: float, payload: float, group: Span, cluster: Cluster) -> float:
    """One trip of all shards around the ring, (N-1)/N of the payload, times `passes`."""
    far = group.nodes if group.nodes > 1 else 0
    latency = max(0, min(far, group.size - 1)) * cluster.between.alpha
    latency += max(0, group.size - 1 - far) * cluster.inside.alpha
    moved = (group.size - 1) / group.size * payload
    return passes * (latency + moved / ring_bandwidth(group, cluster))


def _halving(passes: float, payload: float, group: Span, cluster: Cluster) -> float:
    """Halves first with partners in the node, then what is left, S/g, with those in other nodes."""
    inside, between = cluster.inside, cluster.between
    near = payload * (1 - 1 / group.local)
    far = payload * (1 - 1 / group.nodes)  # of all ranks of a node together
    seconds = _log2(group.local) * inside.alpha
    seconds += _log2(group.nodes) * between.alpha + far / _border(group, cluster)
    return passes * (seconds + near / inside.among(group.local))


def _hierarchical(passes: float, payload: float, group: Span, cluster: Cluster) -> float:
    """A ring inside each node, and g rings between nodes, each over S/g."""
    inner = _ring(passes, payload, Span(group.local, group.local), cluster)
    return inner + _between_nodes(passes, payload, group, cluster)


def _border(group: Span, cluster: Cluster) -> float:
    """Bytes/s that leave a node of the group."""
    return cluster.leaving(group.local, group.adapters)


def _between_nodes(passes: float, payload: float, group: Span, cluster: Cluster) -> float:
    """A ring between nodes for each of g ranks, over S/g: together S through the adapters."""
    moved = (group.nodes - 1) / group.nodes * payload
    return passes * ((group.nodes - 1) * cluster.between.alpha + moved / _border(group, cluster))


def _tree(passes: float, payload: float, group: Span, cluster: Cluster) -> float:
    """Down a binary tree of nodes, along a chain inside each; long payloads flow in pieces.

    Two trees share the payload, so that every rank is busy both ways: S passes a link once.
    """
    chain = (group.local - 1) * cluster.inside.alpha
    latency = _log2(group.nodes) * cluster.between.alpha + chain
    return passes * (latency + payload / (TREE * ring_bandwidth(group, cluster)))


def _message(payload: float, group: Span, cluster: Cluster) -> float:
    """From one rank to another, through one adapter or the rank's part of it."""
    if group.nodes == 1:
        return cluster.inside.seconds(payload)
    return cluster.between.alpha + payload / cluster.leaving(1, min(1, group.adapters))


def _pairwise(payload: float, group: Span, cluster: Cluster) -> float:
    """Every rank sends 1/N of its payload to every other; both links are busy at once."""
    part = payload / group.size
    near, far = group.local - 1, group.size - group.local
    inside, border = cluster.inside, _border(group, cluster)
    return max(
        near * (inside.alpha + part / inside.among(group.local)),
        far * (cluster.between.alpha + group.local * part / border),
    )


def _switch(passes: float, payload: float, group: Span, cluster: Cluster) -> float:
    """The switch of a node adds up; then those between nodes do, or else rings.

    A switch between nodes takes every node's sum once and sends back the total, so that S passes an
    adapter once each way, however many nodes there are.
    """
    inside, between = cluster.inside, cluster.between
    if group.local > 1 and not inside.switched:
        return math.inf
    moved = passes * (group.local - 1) / group.local * payload
    seconds = passes * (group.local - 1) * inside.alpha
    seconds += moved / inside.switched if moved else 0.0
    if group.nodes == 1 or not between.switched:
        return seconds + _between_nodes(passes, payload, group, cluster)
    through = _border(group, cluster) * between.switched / between.bandwidth
    return seconds + passes * between.alpha + payload / through


_WAYS = {
    "ring": _ring,
    "halving-doubling": _halving,
    "hierarchical": _hierarchical,
    "tree": _tree,
    "switch": _switch,
}


def seconds(
    op: str, payload: float, group: Span, cluster: Cluster, algorithm: str = "ring"
) -> float:
    """Predicted time of a collective.

    Args:
        op: one of `OPS`.
        payload: S, bytes of the full tensor; for all_to_all, what one rank sends in all.
        group: how many ranks, how many in each node.
        cluster: the links.
        algorithm: one of `ALGORITHMS[op]`; the only one where there is only one.

    Raises:
        Refusal: the operation or the algorithm is not known.
    """
    if op not in OPS or (algorithm not in ALGORITHMS[op] and len(ALGORITHMS[op]) > 1):
        raise Refusal(
            f"{op} by {algorithm}",
            ", ".join(ALGORITHMS.get(op, OPS)),
            "each operation has a few algorithms, and each of them its formula",
        )
    if group.size == 1:
        return 0.0
    if op == "all_to_all":
        return _pairwise(payload, group, cluster)
    if op == "send":
        return _message(payload, group, cluster)
    if op == "broadcast" and algorithm == "ring":
        whole = payload * group.size / (group.size - 1)  # all of it passes each link
        return _ring(1, whole, group, cluster)
    return _WAYS[algorithm](2 if op == "all_reduce" else 1, payload, group, cluster)


def fastest(
    op: str, payload: float, group: Span, cluster: Cluster, ways: Sequence[str] = ()
) -> tuple[str, float]:
    """The algorithm that takes least, and its time; of those that NCCL has if none are named."""
    ways = ways or LIBRARY.get(op, ALGORITHMS[op][:1])
    times = {way: seconds(op, payload, group, cluster, way) for way in ways}
    best = min(times, key=times.__getitem__)
    return best, times[best]
