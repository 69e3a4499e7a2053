"""What the marks of one backward say: when gradients were ready, when buckets left and arrived."""

from __future__ import annotations

from dataclasses import dataclass, field

from course_lib.trace import Ledger, Refusal


@dataclass
class Sent:
    """A bucket, and the moments of its way. Moments count from 1.

    Attributes:
        names: its parameters, those with a `ready` mark first, in the order of these marks.
        nbytes: bytes of its all-reduce; 0 if none was booked.
        launch: the moment at which its all-reduce began.
        arrived: the moment at which it had been waited for; one after the last, if that never came.
    """

    names: list[str]
    nbytes: int
    launch: int
    arrived: int


@dataclass
class Backward:
    """What the marks of one backward say.

    Attributes:
        marks: (kind, name of the parameter or number of the bucket), one a moment.
        ready: parameter to the moment at which its gradient was complete.
        buckets: in the order of their launch.
    """

    marks: list[tuple[str, str]] = field(default_factory=list)
    ready: dict[str, int] = field(default_factory=dict)
    buckets: list[Sent] = field(default_factory=list)

    @property
    def early(self) -> int:
        """How many buckets were launched before the last gradient was ready."""
        last = max(self.ready.values(), default=0)
        return sum(bucket.launch < last for bucket in self.buckets)

    def flying(self, moment: int) -> int:
        """How many all-reduces are under way after this moment."""
        return sum(bucket.launch <= moment < bucket.arrived for bucket in self.buckets)

    def state(self, name: str, bucket: Sent, moment: int) -> str:
        """One of STATES: where a gradient is after this moment."""
        if moment >= bucket.arrived:
            return "arrived"
        if moment >= bucket.launch:
            return "on the wire"
        return "ready" if 0 < self.ready.get(name, 0) <= moment else "not ready"


def read_backward(ledger: Ledger) -> Backward:
    """The marks of the last backward in this book, and the bytes of its all-reduces."""
    marks: list[tuple[float, str, str]] = []
    for span in ledger.spans:
        kind, _, rest = span.name.partition(" ")
        if kind in ("ready", "launch", "arrived") and span.begin == span.end:
            if kind != "arrived" and marks and marks[-1][1] == "arrived" and not _open(marks):
                marks = []  # all that had been launched has arrived: another backward begins
            marks.append((span.begin, kind, rest))
    return _backward(ledger, marks)


def _open(marks: list[tuple[float, str, str]]) -> bool:
    """Whether something that was launched has not arrived."""
    kinds = [kind for _, kind, _ in marks]
    return kinds.count("launch") > kinds.count("arrived")


def _backward(ledger: Ledger, marks: list[tuple[float, str, str]]) -> Backward:
    story = Backward()
    by_number: dict[str, Sent] = {}
    for moment, (at, kind, rest) in enumerate(marks, 1):
        number, _, names = rest.partition(": ")
        if kind == "ready":
            story.ready[rest] = moment
        elif kind == "launch":
            by_number[number] = Sent(
                names.split(", "), _payload(ledger, at), moment, len(marks) + 1
            )
        elif number in by_number:
            by_number[number].arrived = moment
        else:
            raise Refusal(
                f"a backward on rank {ledger.rank}",
                f"`arrived {number}` and no `launch {number}` before it",
                "a picture of half a backward would be wrong: record all of it",
            )
        story.marks.append((kind, rest if kind == "ready" else number))
    story.buckets = list(by_number.values())
    for bucket in story.buckets:
        bucket.names.sort(key=lambda name: story.ready.get(name, len(marks) + 1))
    return story


def _payload(ledger: Ledger, at: float) -> int:
    """Bytes of the first all-reduce that began at this time or later."""
    calls = (call for call in ledger.calls("all_reduce") if call.begin >= at)
    return next((call.payload for call in calls), 0)
