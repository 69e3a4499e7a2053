"""variant: lists of disjoint intervals, intersected and subtracted"""

from collections import Counter
from typing import NamedTuple


class Job(NamedTuple):
    """What turns seconds into a share of the peak."""

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


def merged(intervals):
    """Disjoint intervals in order."""
    found = []
    for begin, end in sorted(intervals):
        if found and begin <= found[-1][1]:
            found[-1][1] = max(found[-1][1], end)
        else:
            found.append([begin, end])
    return found


def without(first, second):
    """What of the first does not lie in the second."""
    for begin, end in merged(second):
        left = []
        for a, b in first:
            left += [(a, min(b, begin)), (max(a, end), b)]
        first = [(a, b) for a, b in left if a < b]
    return first


def covered(intervals):
    """Seconds."""
    return float(sum(end - begin for begin, end in merged(intervals)))


def of(trace, rank, kind):
    """When a rank did it."""
    return [(s.begin, s.end) for s in trace if (s.rank, s.kind) == (rank, kind)]


def bounds(trace):
    """The step."""
    return min(s.begin for s in trace), max(s.end for s in trace)


def shares(trace, ranks):
    """How each rank spent the step."""
    found = {}
    for rank in ranks:
        compute, calls, copies = (
            of(trace, rank, kind) for kind in ("compute", "communication", "copy")
        )
        exposed = covered(without(merged(calls), compute))
        copied = without(merged(copies), compute + calls)
        idle = without([bounds(trace)], compute + calls + copies)
        found[rank] = Shares(
            covered(compute), exposed, covered(calls) - exposed, covered(copied), covered(idle)
        )
    return found


def exposed_share(trace, ranks):
    """Mean over ranks."""
    begin, end = bounds(trace)
    parts = [share.exposed / (end - begin) for share in shares(trace, ranks).values()]
    return sum(parts) / len(parts)


def utilisation(trace, ranks, job):
    """MFU and HFU."""
    begin, end = bounds(trace)
    model = 6.0 * job.parameters * job.tokens
    hardware = 8.0 * job.parameters * job.tokens if job.recompute else model
    rate = job.peak * len(ranks)
    return [model / (end - begin) / rate, hardware / (end - begin) / rate]


def straggler(trace, ranks):
    """Who cost the others most."""
    calls = [s for s in trace if s.kind == "communication" and s.name not in ("send", "recv")]
    waits = {}
    for call in calls:
        same = [s for s in calls if (s.group, s.seq) == (call.group, call.seq)]
        last = max(same, key=lambda s: s.begin)
        if last.begin > call.begin:
            waits.setdefault((last.rank, call.rank), []).append((call.begin, last.begin))
    lost = Counter()
    for (late, rank), spans in waits.items():
        lost[late] += covered(without(merged(spans), of(trace, rank, "compute")))
    rank, seconds = max(lost.items(), key=lambda item: item[1], default=(None, 0.0))
    return rank if seconds > 0.9e-6 else None


def explain_trace(trace, ranks, job):
    """Given: the numbers that go into a report."""
    mfu, hfu = utilisation(trace, ranks, job)
    return {
        "seconds": bounds(trace)[1] - bounds(trace)[0],
        "exposed_share": exposed_share(trace, ranks),
        "mfu": mfu,
        "hfu": hfu,
        "straggler": straggler(trace, ranks),
    }
