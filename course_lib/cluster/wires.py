"""What travels at the same time: transfers that share ports, and when each of them ends.

Notebook: 13 The mesh (a cluster in the cell).
Paper: Casanova et al., "Versatile, scalable, and accurate simulation of distributed applications
and platforms" (SimGrid, 2014), section 4: flows that share links, in virtual time.
Costs nothing on the wire; each begin and each end looks at all transfers under way.
The production version follows packets (ns-3), ten thousand times slower.

A transfer first has its latency, which nothing slows; then its bytes flow, at a rate that is
divided where transfers that run at once want more of a port than it has.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count

from course_lib.cluster.fold import Fold
from course_lib.plan.inputs.hardware import Cluster
from course_lib.plan.time.network import Transfer, crowding, transfer

Done = Callable[[float], None]
# What the network's formulas call the rest: a reduce is a broadcast backwards.
PRICED_AS = {"reduce": "broadcast", "barrier": "all_reduce", "recv": "send"}


@dataclass(slots=True, eq=False)
class _Flow:
    transfer: Transfer
    left: float  # seconds that its bytes would still take alone
    done: Done


class Wires:
    """The links of a cluster in virtual time.

    Args:
        cluster: the links.
        fold: whose copies send at the same time as those that are run.

    Attributes:
        now: seconds, up to which everything is decided.
    """

    def __init__(self, cluster: Cluster, fold: Fold) -> None:
        self.cluster, self.fold, self.now = cluster, fold, 0.0
        self._later: list[tuple[float, int, _Flow]] = []
        self._flowing: list[_Flow] = []
        self._number = count()
        self._priced: dict[tuple[str, tuple[int, ...], float], Transfer] = {}
        self._crowded: dict[tuple[int, ...], list[float]] = {}

    def price(
        self, op: str, ranks: Sequence[int], payload: float, copies: Sequence[Sequence[int]] = ()
    ) -> Transfer:
        """What a call takes alone, and what folded groups like it send through its ports.

        Args:
            op: in the words of `comm`.
            ranks: of the group; of a message sender and receiver.
            payload: S, bytes.
            copies: groups of ranks that are not run, and do the same at the same time.
        """
        key = (op, tuple(ranks), payload)
        if key not in self._priced:
            found = self._one(op, ranks, payload)
            ports = dict(found.ports)
            for other in copies:
                for port, amount in self._one(op, other, payload).ports.items():
                    if port in ports:
                        ports[port] += amount
            self._priced[key] = Transfer(op, found.algorithm, found.latency, found.flowing, ports)
        return self._priced[key]

    def _one(self, op: str, ranks: Sequence[int], payload: float) -> Transfer:
        if len(ranks) == 1:
            return Transfer(op, "", 0.0, 0.0, {})
        return transfer(PRICED_AS.get(op, op), ranks, payload, self.cluster)

    def start(self, what: Transfer, at: float, done: Done) -> None:
        """Begins a transfer, not before `now`; `done` gets the time of its end."""
        flow = _Flow(what, what.flowing if what.ports else 0.0, done)
        late = what.latency if what.ports else what.seconds
        heapq.heappush(self._later, (at + late, next(self._number), flow))

    def advance(self) -> bool:
        """Goes on to the next end of a transfer, or of a latency; False if nothing is under way."""
        if not self._later and not self._flowing:
            return False
        factors = self._slowed()
        ends = [self.now + f.left * k for f, k in zip(self._flowing, factors, strict=True)]
        until = min([*ends, *(at for at, _, _ in self._later[:1])])
        self._flow_until(max(until, self.now), ends, factors)
        while self._later and self._later[0][0] <= self.now:
            self._arrive(heapq.heappop(self._later)[2])
        return True

    def _slowed(self) -> list[float]:
        """By how much each of those that flow is slowed by the others."""
        running = [flow.transfer for flow in self._flowing]
        key = tuple(map(id, running))  # of transfers that are all kept in `_priced`
        if key not in self._crowded:
            self._crowded[key] = crowding(running, self.cluster)
        return self._crowded[key]

    def _flow_until(self, until: float, ends: list[float], factors: list[float]) -> None:
        passed, self.now = until - self.now, until
        over = [flow for flow, end in zip(self._flowing, ends, strict=True) if end <= until]
        for flow, factor in zip(self._flowing, factors, strict=True):
            flow.left -= passed / factor
        if over:
            self._flowing = [flow for flow in self._flowing if flow not in over]
        for flow in over:
            flow.done(self.now)

    def _arrive(self, flow: _Flow) -> None:
        """Its latency is over: its bytes begin to flow, or it was a call without any."""
        if flow.left > 0.0:
            self._flowing.append(flow)
        else:
            flow.done(self.now)
