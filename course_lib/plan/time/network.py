"""What a collective or a message takes on a cluster, which links it occupies, what slows it.

Notebook: 01 Collectives from scratch (the crossover), 13 The mesh, 15 Choosing a strategy.
Paper: Thakur, Rabenseifner and Gropp (2005), section 4, for the algorithms; Casanova et al.,
"SimGrid" (2014), section 4, for flows that share links.
Costs nothing: arithmetic on two links, and a walk through the ranks where flows share them.
The production version is a trace of the counters of every port.

`cost.py` has the formulas for a group that is spread evenly while others like it are as busy; here
a group is given by its ranks, and is alone until `crowding` says what else runs at the same time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from course_lib.plan.inputs.hardware import Cluster
from course_lib.plan.time.cost import OPS, Span, fastest, seconds
from course_lib.trace import Refusal


class Port(NamedTuple):
    """One direction of a link, which flows share.

    Attributes:
        kind: `inside`, the port of a GPU to its node; `between`, an adapter.
        number: the GPU's rank, or the adapter's number over all nodes.
    """

    kind: str
    number: int


@dataclass(frozen=True)
class Transfer:
    """A collective or a message, alone on the cluster.

    Attributes:
        op: what it is.
        algorithm: how it is done.
        latency: seconds that do not depend on its bytes; other flows do not slow them.
        flowing: seconds that its bytes take.
        ports: bytes through each port that it uses.
    """

    op: str
    algorithm: str
    latency: float
    flowing: float
    ports: dict[Port, float]

    @property
    def seconds(self) -> float:
        """Seconds from the moment when its last rank has come."""
        return self.latency + self.flowing


def transfer(
    op: str, ranks: Sequence[int], payload: float, cluster: Cluster, algorithm: str = ""
) -> Transfer:
    """One operation of a group.

    Args:
        op: one of `cost.OPS`; `send` goes from the first of two ranks to the second.
        ranks: of the group; rank r is GPU r of the cluster, and nodes are filled one by one.
        payload: S, bytes of the full tensor; for all_to_all, what one rank sends in all.
        cluster: the links.
        algorithm: one of `cost.ALGORITHMS[op]`; by default the one that a library would take.

    Raises:
        Refusal: a rank that the cluster does not have, or no such operation or algorithm.
    """
    _check(op, ranks, cluster)
    group = place(ranks, cluster)
    if not algorithm:
        algorithm = fastest(op, payload, group, cluster)[0] if op in OPS else algorithm
    latency = seconds(op, 0.0, group, cluster, algorithm)
    whole = seconds(op, payload, group, cluster, algorithm)
    near, far = _volumes(op, payload, group, algorithm)
    ports = _ports(op, ranks, near, far, cluster)
    return Transfer(op, algorithm, latency, max(0.0, whole - latency), ports)


def place(ranks: Sequence[int], cluster: Cluster) -> Span:
    """How a group lies in nodes; of unequal parts the one with the fewest adapters decides."""
    adapters: dict[int, set[int]] = {}
    for rank in ranks:
        adapters.setdefault(rank // cluster.node, set()).add(cluster.adapter(rank))
    own = min(map(len, adapters.values()))
    return Span(len(ranks), len(ranks) / len(adapters), own)


def crowding(running: Sequence[Transfer], cluster: Cluster) -> list[float]:
    """By how much each of some transfers that run at once is slowed: 1 where it has room.

    Each would like to send its bytes in `flowing` seconds. Where all of them together want more of
    a port than it has, it is shared in proportion to what they want, and a transfer is as slow as
    its most crowded port makes it.

    Args:
        running: transfers that have begun and not ended.
        cluster: the links.
    """
    room = {kind: _capacity(kind, cluster) for kind in ("inside", "between")}
    wanted: dict[Port, float] = defaultdict(float)
    for one in running:
        for port, amount in one.ports.items():
            wanted[port] += amount / one.flowing / room[port.kind]
    return [max([1.0, *(wanted[port] for port in one.ports)]) for one in running]


def _check(op: str, ranks: Sequence[int], cluster: Cluster) -> None:
    beyond = [rank for rank in ranks if not 0 <= rank < cluster.count]
    if beyond or not ranks or (op == "send" and len(ranks) != 2):
        raise Refusal(
            f"{op} of ranks {list(ranks)[:8]}",
            f"a cluster of {cluster.count} GPUs",
            "a group has ranks of the cluster, and a message has two",
        )


def _capacity(kind: str, cluster: Cluster) -> float:
    """Bytes/s of a port; where the switch adds, it takes in more than a ring reaches."""
    link = getattr(cluster, kind)
    return max(link.bandwidth, link.switched)


def _volumes(op: str, payload: float, group: Span, algorithm: str) -> tuple[float, float]:
    """Bytes that each rank sends inside its node, and that leave each node in all."""
    passes = 2 if op == "all_reduce" else 1
    n, g, nodes = group.size, group.local, group.nodes
    if op == "send":
        return (payload, 0.0) if nodes == 1 else (0.0, payload)
    if op == "all_to_all":
        return payload * (g - 1) / n, payload * g * (n - g) / n
    if algorithm in ("hierarchical", "switch", "halving-doubling"):
        return passes * payload * (g - 1) / g, passes * payload * (nodes - 1) / nodes
    around = passes * payload * (1.0 if op == "broadcast" else (n - 1) / n)
    return (around if g > 1 else 0.0), (around if nodes > 1 else 0.0)


def _ports(
    op: str, ranks: Sequence[int], near: float, far: float, cluster: Cluster
) -> dict[Port, float]:
    """Bytes out of each port. A message leaves by its sender's alone."""
    senders = ranks[:1] if op == "send" else ranks
    inside = {Port("inside", rank): near for rank in senders if near}
    if not far:
        return inside
    adapters = {cluster.adapter(rank) for rank in senders}
    nodes = len({rank // cluster.node for rank in senders})
    return inside | {Port("between", a): far * nodes / len(adapters) for a in sorted(adapters)}
