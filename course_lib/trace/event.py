"""One communication call, or one stretch of work, as plain data.

Notebook: 00 Ranks and the ledger (exercises hello_mesh, alpha_beta_fit).
Source: the fields follow NCCL's flight recorder in PyTorch (torch/distributed, "Flight Recorder").
Costs nothing: an event is a dozen numbers, kept in memory, JSON in and out.
The production version adds GPU events for the times and a ring buffer of fixed size.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(slots=True)
class Event:
    """One collective or point-to-point call of one rank.

    A collective that is built from messages (a ring, a tree) is an event with `algorithm` set, and
    each message in it is an event whose `parent` is the collective's `number`. Only events without
    a parent count in totals, so nothing is counted twice.

    Attributes:
        rank: global rank that made the call.
        number: position of this event in the rank's ledger, from 0.
        op: `all_reduce`, `send`, ... in torch.distributed's words.
        axis: name of the group's mesh axis (`world`, `dp`, `tp`, ...).
        group: global ranks of the group, in order.
        seq: how many calls of the same kind (collective, or message to this peer) this rank made
            on this group before; ranks that agree call the same collective under the same seq.
        payload: S of the formulas, in bytes.
        sent: bytes that this rank put on the wire.
        received: bytes that this rank took from the wire.
        begin: seconds on the machine's monotonic clock.
        end: the same, when the caller had waited for it; None while the call is under way.
        arrived: the same, when the data were there, which may be long before anybody waited; None
            where only the wait shows it.
        waited: the same, when the program began to wait for it: from then until `end` it stood
            still. None if it has not waited, or if that was not recorded.
        shape: shape of the tensor given.
        dtype: its dtype without "torch.".
        item: bytes of one element.
        peer: global rank of a message's other end, or of a collective's root; -1 if none.
        algorithm: `ring`, `tree`, ... if built from messages; "" for the backend's own.
        step: for a message, which round of the algorithm it belongs to; -1 if none.
        chunk: for a message, which chunk of the tensor it carries; -1 if none.
        tag: messages of one pair with different tags pass each other by.
        parent: number of the collective that this message belongs to; -1 if none.
        by_host: a GPU's tensor went through the host's memory and network, since the group's
            backend could not move it from GPU to GPU.
        reduction: `sum`, `avg`, `max`, ... of a collective that reduces; "" if it does not.
        via: name of what carried it, the same on all its ranks; groups of the same ranks that were
            made one by one have one each.
    """

    rank: int
    number: int
    op: str
    axis: str
    group: tuple[int, ...]
    seq: int
    payload: int
    sent: int
    received: int
    begin: float
    end: float | None = None
    shape: tuple[int, ...] = ()
    dtype: str = ""
    item: int = 1
    peer: int = -1
    algorithm: str = ""
    step: int = -1
    chunk: int = -1
    tag: int = 0
    parent: int = -1
    arrived: float | None = None
    waited: float | None = None
    by_host: bool = False
    reduction: str = ""
    via: str = ""

    @property
    def over(self) -> float | None:
        """When the wire was free again: the arrival, or the wait if that is all that is known."""
        return self.end if self.arrived is None else self.arrived

    @property
    def label(self) -> str:
        """`all_reduce` or, for one built from messages, `ring all_reduce`."""
        return f"{self.algorithm} {self.op}".strip()

    @property
    def shown(self) -> str:
        """The label as tables have it: `send by the host` for a detour that costs time."""
        return f"{self.label} by the host" if self.by_host else self.label

    def to_dict(self) -> dict[str, Any]:
        """The event as JSON-ready data."""
        # Not `asdict`, which copies each value: ten times the time, on every rank of every grading.
        return {name: getattr(self, name) for name in self.__slots__}

    @staticmethod
    def from_dict(data: dict[str, Any]) -> Event:
        """The event that `to_dict` made `data` of."""
        fields = {**data, "group": tuple(data["group"]), "shape": tuple(data["shape"])}
        return Event(**fields)


@dataclass(slots=True)
class Span:
    """A named stretch of work that is not communication: `forward`, `backward`, `step`.

    Attributes:
        rank: global rank that did it.
        name: what it was.
        begin: seconds on the machine's monotonic clock.
        end: the same.
    """

    rank: int
    name: str
    begin: float
    end: float

    def to_dict(self) -> dict[str, Any]:
        """The span as JSON-ready data."""
        return asdict(self)
