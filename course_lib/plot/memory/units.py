"""The states of units over time: sharded, arriving, resident, computing, being reduced."""

from __future__ import annotations

from dataclasses import dataclass

from course_lib.trace import Ledger

AWAY, ARRIVING, RESIDENT = "", "arriving", "resident"
FORWARD, BACKWARD, REDUCING = "computing forward", "computing backward", "gradient being reduced"


@dataclass(frozen=True)
class Moment:
    """One mark, or the begin or end of a span.

    Attributes:
        kind: gather, gathered, free, reduce, reduced, forward, backward, end (of computing).
        unit: whose.
    """

    kind: str
    unit: str


@dataclass(frozen=True)
class Unit:
    """The state of one unit.

    Attributes:
        place: AWAY, ARRIVING or RESIDENT.
        work: FORWARD or BACKWARD while it computes, else empty.
        reducing: whether its gradient is on the wire.
    """

    place: str = AWAY
    work: str = ""
    reducing: bool = False

    @property
    def state(self) -> str:
        """The one word for all this."""
        return self.work or (REDUCING if self.reducing else self.place)

    def after(self, kind: str) -> Unit:
        """The state that a moment of this kind leads to."""
        place = {"gather": ARRIVING, "gathered": RESIDENT, "free": AWAY}.get(kind, self.place)
        work = {"forward": FORWARD, "backward": BACKWARD, "end": ""}.get(kind, self.work)
        reducing = {"reduce": True, "reduced": False}.get(kind, self.reducing)
        return Unit(place, work, reducing)


def read_moments(ledger: Ledger) -> list[Moment]:
    """What the marks and spans of gathered units say, in order of time."""
    at: list[tuple[float, Moment]] = []
    for span in ledger.spans:
        kind, _, unit = span.name.partition(" ")
        if kind in ("gather", "gathered", "free", "reduce"):
            at.append((span.begin, Moment(kind, unit)))
        elif kind in ("forward", "backward"):
            at += [(span.begin, Moment(kind, unit)), (span.end, Moment("end", unit))]
    known = {moment.unit for _, moment in at if moment.kind == "gather"}
    at = [(time, moment) for time, moment in at if moment.unit in known]
    at += _reduced(ledger, sorted((time, m.unit) for time, m in at if m.kind == "reduce"))
    return [moment for _, moment in sorted(at, key=lambda pair: pair[0])]


def _reduced(ledger: Ledger, reduces: list[tuple[float, str]]) -> list[tuple[float, Moment]]:
    """When each reduction was over.

    It lasts until the reduce-scatters that began after its mark, and before the next such mark,
    have been waited for; one that sends nothing is over at once.
    """
    out = []
    for number, (begin, unit) in enumerate(reduces, 1):
        after = reduces[number][0] if reduces[number:] else float("inf")
        calls = [c for c in ledger.calls("reduce_scatter") if begin <= c.begin < after]
        ends = [call.end for call in calls if call.end is not None]
        if len(ends) == len(calls):
            out.append((max(ends, default=begin), Moment("reduced", unit)))
    return out


def unit_states(units: list[str], moments: list[Moment]) -> list[dict[str, Unit]]:
    """The state of every unit before all moments, and after each."""
    now = {unit: Unit() for unit in units}
    # What is computed with or freed before it is gathered was here before the record began.
    for unit in units:
        kinds = [m.kind for m in moments if m.unit == unit]
        if kinds[0] not in ("gather", "reduce"):
            now[unit] = Unit(RESIDENT)
    states = [dict(now)]
    for moment in moments:
        now[moment.unit] = now[moment.unit].after(moment.kind)
        states.append(dict(now))
    return states
