"""mutant: 'exposed' of rank, intervals that overlap are summed"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from course_lib.trace import Stretch


class Job(NamedTuple):
    """What turns seconds into a share of the peak.

    Attributes:
        parameters: of the model.
        tokens: of one step, over all ranks.
        recompute: whether activations are recomputed in the backward.
        peak: operations a second that one device can do at most.
    """

    parameters: float
    tokens: float
    recompute: bool
    peak: float


class Shares(NamedTuple):
    """How a rank spent the step, in seconds."""

    compute: float
    exposed: float
    hidden: float
    copy: float
    idle: float


def times(trace: Iterable[Stretch], rank: int, *kinds: str) -> list[tuple[float, float]]:
    """Given: when a rank did something of these kinds, as (begin, end); they may overlap."""
    return [(s.begin, s.end) for s in trace if s.rank == rank and s.kind in kinds]


def covered(intervals: Iterable[tuple[float, float]]) -> float:
    """Seconds in which at least one of the intervals (begin, end) goes on."""
    total, until = 0.0, float("-inf")
    for begin, end in sorted(intervals):
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total


def step_seconds(trace: Sequence[Stretch]) -> float:
    """Given: how long the step lasts."""
    return max(s.end for s in trace) - min(s.begin for s in trace)


def shares(trace: Sequence[Stretch], ranks: Sequence[int]) -> dict[int, Shares]:
    """How each rank spent the step; by global rank."""
    found = {}
    for rank in ranks:
        compute = covered(times(trace, rank, "compute"))
        communication = covered(times(trace, rank, "communication"))
        either = covered(times(trace, rank, "compute", "communication"))
        busy = covered(times(trace, rank, "compute", "communication", "copy"))
        found[rank] = Shares(
            compute=compute,
            exposed=sum(e - b for b, e in times(trace, rank, "communication")) - (compute + communication - either),
            hidden=compute + communication - either,
            copy=busy - either,
            idle=step_seconds(trace) - busy,
        )
    return found


def exposed_share(trace: Sequence[Stretch], ranks: Sequence[int]) -> float:
    """The part of the step in which a rank communicates and does not compute; mean over ranks."""
    exposed = sum(share.exposed for share in shares(trace, ranks).values())
    return exposed / len(ranks) / step_seconds(trace)


def utilisation(trace: Sequence[Stretch], ranks: Sequence[int], job: Job) -> tuple[float, float]:
    """MFU and HFU of the step, both 0 to 1."""
    able = step_seconds(trace) * len(ranks) * job.peak
    forward = 2 * job.parameters * job.tokens
    return 3 * forward / able, (3 + job.recompute) * forward / able


def straggler(trace: Sequence[Stretch], ranks: Sequence[int]) -> int | None:
    """The global rank that cost the others most; None if it is less than a microsecond."""
    calls: dict[tuple[tuple[int, ...], int], list[Stretch]] = {}
    for s in trace:
        if s.kind == "communication" and s.name not in ("send", "recv"):
            calls.setdefault((s.group, s.seq), []).append(s)
    waits: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for call in calls.values():
        last = max(call, key=lambda s: s.begin)
        for s in call:
            waits.setdefault((last.rank, s.rank), []).append((s.begin, last.begin))
    lost = dict.fromkeys(ranks, 0.0)
    for (late, rank), intervals in waits.items():
        work = times(trace, rank, "compute")
        lost[late] += covered(intervals + work) - covered(work)
    worst = max(ranks, key=lambda rank: lost[rank])
    return worst if lost[worst] >= 1e-6 else None


def explain_trace(
    trace: Sequence[Stretch], ranks: Sequence[int], job: Job
) -> dict[str, float | int | None]:
    """Given: the numbers that go into a report."""
    mfu, hfu = utilisation(trace, ranks, job)
    return {
        "seconds": step_seconds(trace),
        "exposed_share": exposed_share(trace, ranks),
        "mfu": mfu,
        "hfu": hfu,
        "straggler": straggler(trace, ranks),
    }
