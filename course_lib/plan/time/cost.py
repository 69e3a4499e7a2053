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
        local: g, how many of them are in each node.
    """

    size: int
    local: int

    @property
    def nodes(self) -> int:
        """How many nodes it spans."""
        return -(-self.size // self.local)


def span(size: int, stride: int, cluster: Cluster) -> Span:
    """The group of every `stride`-th rank: how many of them a node holds.

    Args:
        size: N, ranks of the group.
        stride: distance of neighbours, which is the product of the axes inside.
        cluster: for the size of a node.
    """
    return Span(size, max(1, min(size, cluster.node // stride)))


def _log2(count: int) -> int:
    return math.ceil(math.log2(count)) if count > 1 else 0


def ring_bandwidth(group: Span, cluster: Cluster) -> float:
    """Bytes/s of a ring through all nodes.

    The g ranks of a node are g rings at once, each leaving the node through an adapter of its own,
    so that g·B bytes/s cross its border, but never more than pass inside.
    """
    if group.nodes == 1:
        return cluster.inside.bandwidth
    outer = group.local * cluster.between.bandwidth
    return min(cluster.inside.bandwidth, outer) if group.local > 1 else outer


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
    far = payload / group.local * (1 - 1 / group.nodes)
    seconds = _log2(group.local) * inside.alpha + near / inside.bandwidth
    return passes * (seconds + _log2(group.nodes) * between.alpha + far / between.bandwidth)


def _hierarchical(passes: float, payload: float, group: Span, cluster: Cluster) -> float:
    """A ring inside each node, and g rings between nodes, each over S/g."""
    inner = _ring(passes, payload, Span(group.local, group.local), cluster)
    outer = _ring(passes, payload / group.local, Span(group.nodes, 1), cluster)
    return inner + outer


def _tree(passes: float, payload: float, group: Span, cluster: Cluster) -> float:
    """Down a binary tree of nodes, along a chain inside each; long payloads flow in pieces.

    Two trees share the payload, so that every rank is busy both ways: S passes a link once.
    """
    chain = (group.local - 1) * cluster.inside.alpha
    latency = _log2(group.nodes) * cluster.between.alpha + chain
    return passes * (latency + payload / (TREE * ring_bandwidth(group, cluster)))


def _pairwise(payload: float, group: Span, cluster: Cluster) -> float:
    """Every rank sends 1/N of its payload to every other; both links are busy at once."""
    part = payload / group.size
    near, far = group.local - 1, group.size - group.local
    inside, between = cluster.inside, cluster.between
    return max(
        near * (inside.alpha + part / inside.bandwidth),
        far * (between.alpha + part / between.bandwidth),
    )


def _switch(passes: float, payload: float, group: Span, cluster: Cluster) -> float:
    """The switch of a node adds up; what a node then has goes through rings between nodes."""
    inside = cluster.inside
    if not inside.switched:
        return math.inf
    moved = passes * (group.local - 1) / group.local * payload
    seconds = passes * (group.local - 1) * inside.alpha + moved / inside.switched
    return seconds + _ring(passes, payload / group.local, Span(group.nodes, 1), cluster)


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
        return (cluster.inside if group.nodes == 1 else cluster.between).seconds(payload)
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
