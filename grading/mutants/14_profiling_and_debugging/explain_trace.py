"""Wrong and right answers to `explain_trace`: see `course dev show explain_trace`."""

from course_lib.grade.author.answers import Right, Wrong

WRONG = [
    Wrong("all_copies", ["copies beside computation or communication do not count"], '''
-            copy=busy - either,
+            copy=covered(times(trace, rank, "copy")),
'''),
    Wrong("always_recomputed", ["nothing is recomputed unless job.recompute says so"], '''
-    return 3 * forward / able, (3 + job.recompute) * forward / able
+    return 3 * forward / able, 4 * forward / able
'''),
    Wrong("any_group", ["calls of different groups are taken for one"], '''
-            calls.setdefault((s.group, s.seq), []).append(s)
+            calls.setdefault(((), s.seq), []).append(s)
'''),
    Wrong("any_loss", ["the straggler of a trace with", "is not what it should be", "expected: None"], '''
-    return worst if lost[worst] >= 1e-6 else None
+    return worst if lost[worst] > 0 else None
'''),
    Wrong("a_thousandth_is_nothing", ["the straggler of a trace with", "expected: 1"], '''
-    return worst if lost[worst] >= 1e-6 else None
+    return worst if lost[worst] >= 1e-4 else None
'''),
    Wrong("any_number", ["a group makes many calls", "each with its number"], '''
-            calls.setdefault((s.group, s.seq), []).append(s)
+            calls.setdefault((s.group, 0), []).append(s)
'''),
    Wrong("backward_like_forward", ["it is 3 forwards: a backward takes twice as many operations as a forward"], '''
-    return 3 * forward / able, (3 + job.recompute) * forward / able
+    return 2 * forward / able, (2 + job.recompute) * forward / able
'''),
    Wrong("busy_time_only", ["the time is that of the step"], '''
-    able = step_seconds(trace) * len(ranks) * job.peak  # mutate: same
+    able = sum(share.compute for share in shares(trace, ranks).values()) * job.peak
'''),
    Wrong("calls_summed", ["'exposed' of rank", "intervals that overlap are summed"], '''
-            exposed=either - compute,
+            exposed=sum(e - b for b, e in times(trace, rank, "communication")) - (compute + communication - either),
'''),
    Wrong("computes_longest", ["this is the rank that computes longest"], '''
-    worst = max(ranks, key=lambda rank: lost[rank])
-    return worst if lost[worst] >= 1e-6 else None
+    return max(ranks, key=lambda rank: covered(times(trace, rank, "compute")))
'''),
    Wrong("computing_is_lost", ["who computes while it waits loses nothing"], '''
-        work = times(trace, rank, "compute")
+        work: list[tuple[float, float]] = []
'''),
    Wrong("copies_hide", ["copies do not hide communication"], '''
-            exposed=either - compute,
+            exposed=busy - covered(times(trace, rank, "compute", "copy")),
'''),
    Wrong("counted_twice", ["a moment counts once", "also if a rank waits in two calls"], '''
-        lost[late] += covered(intervals + work) - covered(work)
+        lost[late] += sum(covered([one, *work]) - covered(work) for one in intervals)
'''),
    Wrong("devices_that_work", ["all ranks have a device", "also those that did nothing"], '''
-    able = step_seconds(trace) * len(ranks) * job.peak  # mutate: same
+    able = step_seconds(trace) * len({s.rank for s in trace}) * job.peak
'''),
    Wrong("exposed_is_all", ["take off what computation hides"], '''
-            exposed=either - compute,
+            exposed=communication,
'''),
    Wrong("first_begins", ["the straggler of a trace with", "is not what it should be"], '''
-        last = max(call, key=lambda s: s.begin)
+        last = max(call, key=lambda s: s.end)
'''),
    Wrong("forward_only", ["these are the operations of the forward alone"], '''
-    return 3 * forward / able, (3 + job.recompute) * forward / able
+    return forward / able, (1 + job.recompute) * forward / able
'''),
    Wrong("from_zero", ["the clock did not begin at 0"], '''
-            idle=step_seconds(trace) - busy,
+            idle=max(s.end for s in trace) - busy,
'''),
    Wrong("gaps_bridged", ["gaps between the intervals are not covered"], '''
-    total, until = 0.0, float("-inf")
-    for begin, end in sorted(intervals):
-        total += max(0.0, end - max(begin, until))
-        until = max(until, end)
-    return total
+    spans = list(intervals)
+    return max((e for _, e in spans), default=0.0) - min((b for b, _ in spans), default=0.0)
'''),
    Wrong("hfu_without", ["HFU counts what is carried out", "recomputation included"], '''
-    return 3 * forward / able, (3 + job.recompute) * forward / able
+    return 3 * forward / able, 3 * forward / able
'''),
    Wrong("hidden_at_most", ["look at when they go on"], '''
-            hidden=compute + communication - either,
+            hidden=min(compute, communication),
'''),
    Wrong("hidden_is_all", ["only what goes on beside computation is hidden"], '''
-            hidden=compute + communication - either,
+            hidden=communication,
'''),
    Wrong("idle_is_exposed", ["idle time is not exposed"], '''
-            exposed=either - compute,
+            exposed=step_seconds(trace) - compute - (busy - either),
'''),
    Wrong("index_not_rank", ["the straggler of a trace with", "is not what it should be"], '''
-    return worst if lost[worst] >= 1e-6 else None
+    return list(ranks).index(worst) if lost[worst] >= 1e-6 else None
'''),
    Wrong("intervals_summed", ["intervals that overlap are summed"], '''
-    total, until = 0.0, float("-inf")
-    for begin, end in sorted(intervals):
-        total += max(0.0, end - max(begin, until))
-        until = max(until, end)
-    return total
+    return sum(end - begin for begin, end in intervals)
'''),
    Wrong("last_most_often", ["this is the rank that comes last most often"], '''
-        lost[late] += covered(intervals + work) - covered(work)
+        lost[late] += len(intervals) * (late == rank)
'''),
    Wrong("goes_through_them_twice", ["an iterator can be gone through only once"], '''
     total, until = 0.0, float("-inf")
+    if not any(True for _ in intervals):
+        return 0.0
'''),
    Wrong("intervals_sorted_in_place", ["a list that was given has changed"], '''
     total, until = 0.0, float("-inf")
-    for begin, end in sorted(intervals):
+    intervals.sort()
+    for begin, end in intervals:
'''),
    Wrong("trace_sorted_in_place", ["a list that was given has changed"], '''
     calls: dict[tuple[tuple[int, ...], int], list[Stretch]] = {}
+    trace.sort(key=lambda s: s.begin)
'''),
    Wrong("lengths_subtracted", ["lengths are subtracted"], '''
-            exposed=either - compute,
+            exposed=max(0.0, communication - compute),
'''),
    Wrong("marks_computed", ["'compute' of rank"], '''
-        compute = covered(times(trace, rank, "compute"))  # mutate: same
+        compute = covered(times(trace, rank, "compute", "step"))
'''),
    Wrong("messages_left_out", ["messages are communication too"], '''
         compute = covered(times(trace, rank, "compute"))  # mutate: same
+        trace = [s for s in trace if s.name not in ("send", "recv")]
'''),
    Wrong("messages_meet", ["messages are no collectives"], '''
-        if s.kind == "communication" and s.name not in ("send", "recv"):
+        if s.kind == "communication":
'''),
    Wrong("mfu_with_recomputation", ["MFU counts what the model needs"], '''
-    return 3 * forward / able, (3 + job.recompute) * forward / able
+    return (3 + job.recompute) * forward / able, (3 + job.recompute) * forward / able
'''),
    Wrong("nested_ends", ["one that lies inside another does not end it"], '''
-        until = max(until, end)
+        until = end
'''),
    Wrong("never_none", ["the straggler of a trace with", "is not what it should be", "expected: None"], '''
-    return worst if lost[worst] >= 1e-6 else None
+    return worst
'''),
    Wrong("not_computing_is_idle", ["who communicates is not idle"], '''
-            idle=step_seconds(trace) - busy,
+            idle=step_seconds(trace) - compute,
'''),
    Wrong("nothing_returned", ["nothing is returned"], '''
-    return total
'''),
    Wrong("own_window", ["the step is the same for all ranks"], '''
-            idle=step_seconds(trace) - busy,
+            idle=step_seconds([s for s in trace if s.rank == rank and s.kind != "step"] or trace[:1]) - busy,
'''),
    Wrong("peak_of_one", ["each rank has a device: this is the peak of one"], '''
-    able = step_seconds(trace) * len(ranks) * job.peak  # mutate: same
+    able = step_seconds(trace) * job.peak
'''),
    Wrong("percent", ["these are percent"], '''
-    return 3 * forward / able, (3 + job.recompute) * forward / able
+    return 300 * forward / able, 100 * (3 + job.recompute) * forward / able
'''),
    Wrong("ranks_counted", ["are no dict with these ranks as keys"], '''
-    for rank in ranks:
+    for rank in range(len(ranks)):
'''),
    Wrong("ranks_that_work", ["are no dict with these ranks as keys"], '''
-    for rank in ranks:
+    for rank in sorted({s.rank for s in trace}):
'''),
    Wrong("share_of_communication", ["divide by the time of the step", "not by that of communication"], '''
-    return exposed / len(ranks) / step_seconds(trace)
+    every = sum(s.exposed + s.hidden for s in shares(trace, ranks).values())
+    return exposed / every if every else 0.0
'''),
    Wrong("share_of_the_worst", ["the mean over the ranks", "not the worst of them"], '''
-    exposed = sum(share.exposed for share in shares(trace, ranks).values())
-    return exposed / len(ranks) / step_seconds(trace)
+    exposed = max(share.exposed for share in shares(trace, ranks).values())
+    return exposed / step_seconds(trace)
'''),
    Wrong("share_summed", ["the mean over the ranks", "not their sum"], '''
-    return exposed / len(ranks) / step_seconds(trace)
+    return exposed / step_seconds(trace)
'''),
    Wrong("shares_summed", ["'compute' of rank", "intervals that overlap are summed"], '''
-        compute = covered(times(trace, rank, "compute"))  # mutate: same
+        compute = sum(e - b for b, e in times(trace, rank, "compute"))
'''),
    Wrong("swapped", ["MFU and HFU are swapped"], '''
-    return 3 * forward / able, (3 + job.recompute) * forward / able
+    return (3 + job.recompute) * forward / able, 3 * forward / able
'''),
    Wrong("unsorted", ["intervals come in any order"], '''
-    for begin, end in sorted(intervals):
+    for begin, end in intervals:
'''),
    Wrong("waits_longest", ["this is the rank that waits longest"], '''
-        lost[late] += covered(intervals + work) - covered(work)
+        lost[rank] += covered(intervals + work) - covered(work)
'''),
]

RIGHT = [
    Right("variant_empty_left_out", "stretches of no length are left out, ranks are sorted by what they cost", '''
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
    return [(s.begin, s.end) for s in trace if s.rank == rank and s.kind in kinds and s.end > s.begin]


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
            exposed=either - compute,
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
    worst = sorted(ranks, key=lambda rank: -lost[rank])[0]
    return None if lost[worst] < 1e-6 else worst


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
'''),
    Right("variant_merge", "lists of disjoint intervals, intersected and subtracted", '''
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
'''),
    Right("variant_sweep", "a sweep over all beginnings and ends that counts what is open", '''
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
    spans = list(intervals)
    ends = sorted([(begin, 1) for begin, _ in spans] + [(end, -1) for _, end in spans])
    total, under_way = 0.0, 0
    for (at, change), (then, _) in zip(ends, ends[1:], strict=False):
        under_way += change
        total += (then - at) * (under_way > 0)
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
            exposed=either - compute,
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
'''),
]
