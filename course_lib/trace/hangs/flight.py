"""The flight log: the last calls of a rank, to be read when the job hangs.

Notebook: 14 Profiling and debugging (find_desync, hang_lab).
Source: PyTorch's flight recorder ("Flight Recorder for Debugging Stuck Jobs"), a ring buffer of the
last collectives of every rank that is written out when a timeout fires.
Costs nothing until it is asked for: it is the end of the rank's ledger.
The production version lives in C++ and is bounded from the start; ours is cut when it is read.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from course_lib.trace.event import Event
from course_lib.trace.ledger import Ledger

MESSAGES = ("send", "recv")


class Channel(NamedTuple):
    """Calls that are counted together: a group's collectives, or messages from one rank to another.

    Attributes:
        group: global ranks of the group.
        sender: of messages, global rank that sends them; -1 for collectives.
        receiver: of messages, global rank that takes them; -1 for collectives.
    """

    group: tuple[int, ...]
    sender: int = -1
    receiver: int = -1

    @property
    def ends(self) -> tuple[int, ...]:
        """The ranks that must all make each call."""
        return self.group if self.sender < 0 else (self.sender, self.receiver)


@dataclass(frozen=True, slots=True)
class Record:
    """One call in the log; the fields are those of `Event`, with the same names.

    Attributes:
        rank: global rank that made it.
        op: `all_reduce`, `ring all_reduce`, `send`, ...
        axis: name of the group's mesh axis; "" if not known.
        group: global ranks of the group.
        seq: number of the call on its channel, from 0; the same on all ranks that agree.
        payload: bytes.
        shape: of the tensor given.
        dtype: without "torch."; "" if not known.
        peer: a message's other end, or the root; -1 if none.
        begin: seconds, when it was called.
        waited: when the program began to wait for it; None if it has not.
        end: when it had been waited for; None if it is under way.
    """

    rank: int
    op: str
    axis: str
    group: tuple[int, ...]
    seq: int
    payload: int
    shape: tuple[int, ...]
    dtype: str
    peer: int
    begin: float
    waited: float | None
    end: float | None

    @property
    def channel(self) -> Channel:
        """What it is counted in."""
        return _channel(self.rank, self.op, self.group, self.peer)

    @property
    def state(self) -> str:
        """`finished`; `waiting`, if the program stands still in it; else `under way`."""
        if self.end is not None:
            return "finished"
        return "under way" if self.waited is None else "waiting"


@dataclass
class FlightLog:
    """The last calls of one rank.

    Attributes:
        rank: global rank.
        records: the oldest first.
        made: how many calls it has begun on each channel so far, also those no longer in the log;
            at least those that are.
        state: `running`, or how the rank's program ended: `finished`, `raised`, `killed`.
    """

    rank: int
    records: list[Record]
    made: dict[Channel, int] = field(default_factory=dict)
    state: str = "running"

    def __post_init__(self) -> None:
        for record in self.records:
            self.made[record.channel] = max(record.seq + 1, self.made.get(record.channel, 0))

    @property
    def waiting(self) -> Record | None:
        """The call that the program stands still in; None if it is at work or has ended."""
        stuck = [record for record in self.records if record.state == "waiting"]
        return stuck[-1] if stuck and self.state == "running" else None

    def to_dict(self) -> dict[str, Any]:
        """The log as JSON-ready data."""
        return {
            "rank": self.rank,
            "state": self.state,
            "records": [asdict(record) for record in self.records],
            "made": [[*channel, count] for channel, count in self.made.items()],
        }

    @staticmethod
    def from_dict(data: dict[str, Any]) -> FlightLog:
        """The log that `to_dict` made `data` of."""
        records = [
            Record(**{**record, "group": tuple(record["group"]), "shape": tuple(record["shape"])})
            for record in data["records"]
        ]
        made = {
            Channel(tuple(group), sender, receiver): count
            for group, sender, receiver, count in data["made"]
        }
        return FlightLog(data["rank"], records, made, data["state"])


def flight_log(ledger: Ledger, last: int = 32, state: str = "running") -> FlightLog:
    """The last calls of a ledger.

    Args:
        ledger: of one rank.
        last: how many calls to keep; the messages inside a collective are not calls.
        state: how the rank's program ended, if it did.
    """
    made = {
        _channel(ledger.rank, kind.sort, kind.group, kind.peer): count
        for kind, count in ledger.counts.copy().items()  # another thread may be writing
        if kind.sort != "part"
    }
    calls = ledger.calls()
    records = [_record(event) for event in calls[max(0, len(calls) - last) :]]
    return FlightLog(ledger.rank, records, made, state)


def _record(event: Event) -> Record:
    return Record(
        event.rank, event.label, event.axis, event.group, event.seq, event.payload, event.shape,
        event.dtype, event.peer, event.begin, event.waited, event.end,
    )  # fmt: skip


def _channel(rank: int, op: str, group: tuple[int, ...], peer: int) -> Channel:
    if op not in MESSAGES:
        return Channel(group)
    ends = (rank, peer) if op == "send" else (peer, rank)
    return Channel(group, *ends)
