"""What is written down of a run: a few kinds of entries, a file of JSON lines for each rank.

Notebook: 14 Profiling and debugging (record and replay).
Source: JSON Lines (jsonlines.org); rr (O'Callahan et al., 2017), which also records only what a
process gets from outside, because all else follows from it.
Costs about 350 bytes a call on the disk.
The production version is binary, and keeps a window of the last steps.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

VERSION = 1


@dataclass(frozen=True, slots=True)
class Start:
    """How a rank began.

    Attributes:
        rank: global rank.
        world: how many ranks there were.
        environment: on which the bits may depend, by name: versions, processor, threads.
        random: where all random generators stood, as `checkpoint.files.plain` writes it.
        version: of the format.
    """

    kind: ClassVar[str] = "start"
    rank: int
    world: int
    environment: dict[str, Any] = field(default_factory=dict)
    random: Any = None
    version: int = VERSION


@dataclass(frozen=True, slots=True)
class Step:
    """A step of training begins.

    Attributes:
        number: as the program counts.
        calls: how many calls the rank had made before.
        batch: digits of this rank's batch; "" if it was not told.
        random: digits of the states of the random generators, by name.
        moved: those that have moved since the start. One that nobody has seeded or used stands
            elsewhere in each run, and that means nothing.
    """

    kind: ClassVar[str] = "step"
    number: int
    calls: int
    batch: str
    random: dict[str, str]
    moved: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """A call begins.

    Attributes:
        number: of this rank's calls, from 0.
        op: `all_reduce`, `ring all_reduce`, `send`, ...
        axis: name of the group's mesh axis.
        group: global ranks of the group, in order.
        seq: number of the call in this recording among the collectives of its group, or among the
            messages to or from this peer; the same on all ranks that agree.
        shape: of the tensor given.
        dtype: without "torch.".
        peer: a message's other end, or the root; -1 if none.
        reduction: `sum`, `avg`, ...; "" if none.
        given: digits of what the call reads on this rank; "" if it reads nothing.
        line: of the program that made it.
    """

    kind: ClassVar[str] = "call"
    number: int
    op: str
    axis: str
    group: tuple[int, ...]
    seq: int
    shape: tuple[int, ...]
    dtype: str
    peer: int
    reduction: str
    given: str
    line: str

    @property
    def what(self) -> tuple[Any, ...]:
        """All that makes it this call and no other; its values and its line do not."""
        return self.op, self.group, self.seq, self.shape, self.dtype, self.peer, self.reduction

    @property
    def text(self) -> str:
        """`all_reduce of 4096 float64 on dp, train.py, line 12`."""
        count = " × ".join(map(str, self.shape)) or "one"
        of = f" of {count} {self.dtype}" if self.dtype else ""
        where = f", {self.line}" if self.line else ""
        return f"{self.op}{of} on {self.axis or list(self.group)}{where}"


@dataclass(frozen=True, slots=True)
class Done:
    """The program has waited for a call.

    Attributes:
        call: its number.
        taken: digits of its result on this rank; "" if it gets none.
    """

    kind: ClassVar[str] = "done"
    call: int
    taken: str


@dataclass(frozen=True, slots=True)
class Loss:
    """A step's loss.

    Attributes:
        bits: exactly, as `float.hex` writes it.
    """

    kind: ClassVar[str] = "loss"
    bits: str

    @property
    def value(self) -> float:
        """The number."""
        return float.fromhex(self.bits)


@dataclass(frozen=True, slots=True)
class End:
    """The recording was ended by the program, and not by a fault."""

    kind: ClassVar[str] = "end"


Entry = Start | Step | Call | Done | Loss | End
KINDS: dict[str, Any] = {made.kind: made for made in (Start, Step, Call, Done, Loss, End)}


def to_plain(entry: Entry) -> dict[str, Any]:
    """The entry as JSON-ready data."""
    return {"kind": entry.kind, **asdict(entry)}


def from_plain(plain: dict[str, Any]) -> Entry:
    """The entry that `to_plain` made `plain` of.

    Raises:
        KeyError, TypeError, ValueError: it made nothing like it.
    """
    fields = dict(plain)
    made = KINDS[fields.pop("kind")]
    for name in {"group", "shape"} & fields.keys():
        fields[name] = tuple(map(int, fields[name]))
    if "moved" in fields:
        fields["moved"] = tuple(map(str, fields["moved"]))
    entry: Entry = made(**fields)
    _check(entry)
    return entry


KEPT_AS = {"int": int, "str": str, "dict[str, Any]": dict, "dict[str, str]": dict}


def _check(entry: Entry) -> None:
    """Numbers are numbers, and texts texts: what follows relies on it."""
    for name, kind in entry.__annotations__.items():
        value = getattr(entry, name)
        wanted = KEPT_AS.get(kind)
        if wanted is not None and type(value) is not wanted:
            raise TypeError(f"{name} is a {type(value).__name__}")
    if isinstance(entry, Loss):
        float.fromhex(entry.bits)
