"""explain_trace: where a step's time went, and which rank delayed it.

Notebook 14. A trace says what every rank did at what time. The first questions are always the same:
how much communication is not hidden by computation, how much of the time is idle, what are MFU and
HFU, and which rank do the others wait for? The answers are arithmetic with intervals of time, and
simply summing lengths gives wrong answers, because intervals overlap: a kernel lies inside a span,
two all-reduces are under way at once, both beside the backward. Summed, a rank computes for 120 %
of the time.

The trace is a list of `Stretch` (course_lib.trace) of one training step, in any order:

- `rank`: the global rank; `begin`, `end`: seconds on a clock that all ranks share, and that did not
  begin at 0;
- `kind`: `compute`; `communication`; `copy`, between host and device; anything else is only a mark;
- `name`: of communication, the operation: `all_reduce`, `send`, ...;
- `group`, `seq`: of a collective, its group (global ranks) and the number of the call on that
  group. So the stretches of one call are those with the same group and the same number. `send` and
  `recv` are messages: communication, but no collectives, and numbered apart.

`ranks` are all ranks of the job, including those that did nothing. The step lasts from the first
beginning to the last end on any rank, and has this length for all ranks.

Rules:

- `covered(intervals)`: the seconds in which at least one of them goes on. They may come in any
  order, overlap, touch, lie inside each other, or be none; and they may come from an iterator,
  which can be gone through only once.
- `shares`: of each rank, the seconds of the step in which it computed (`compute`); communicated and
  did not compute (`exposed`); communicated and computed (`hidden`: it is part of `compute`, and
  such communication is free); copied, and neither computed nor communicated (`copy`); did none of
  these (`idle`). So compute + exposed + copy + idle is the step.
- `exposed_share`: the exposed part of the step, 0 to 1, as the mean over the ranks.
- `utilisation`: two shares of what the devices, one a rank, could have calculated in the step.
  MFU (model FLOPs utilisation) counts the operations that the model needs, HFU (hardware) those
  that were carried out. A forward takes 2 operations for each parameter and token, a multiplication
  and an addition; a backward takes twice as many as a forward. With recomputation the forward is
  carried out once more; no model needs that. (Attention's own operations are left out here.)
- `straggler`: each rank of a collective waits for the one that comes last, that is, begins last. It
  loses the time from its own beginning to the last one's, but for moments in which it computes. A
  moment counts once, also if it waits in two calls for the same rank. The straggler is the rank for
  which the others lost most, all of them together; None if they lost less than a microsecond. No
  collective here ends on any rank before the last rank has begun it. Ties do not occur.
- Lists that are given stay as they are.

Plain Python. `course_lib.trace` answers the same questions, so use nothing of it except `Stretch`.
"""

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
    # BEGIN SOLUTION: covered
    total, until = 0.0, float("-inf")
    for begin, end in sorted(intervals):
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total
    # END SOLUTION


def step_seconds(trace: Sequence[Stretch]) -> float:
    """Given: how long the step lasts."""
    return max(s.end for s in trace) - min(s.begin for s in trace)


def shares(trace: Sequence[Stretch], ranks: Sequence[int]) -> dict[int, Shares]:
    """How each rank spent the step; by global rank."""
    # BEGIN SOLUTION: shares
    found = {}
    for rank in ranks:
        compute = covered(times(trace, rank, "compute"))  # mutate: same
        communication = covered(times(trace, rank, "communication"))  # mutate: same
        either = covered(times(trace, rank, "compute", "communication"))  # mutate: same
        busy = covered(times(trace, rank, "compute", "communication", "copy"))
        found[rank] = Shares(
            compute=compute,
            exposed=either - compute,
            hidden=compute + communication - either,
            copy=busy - either,
            idle=step_seconds(trace) - busy,
        )
    return found
    # END SOLUTION


def exposed_share(trace: Sequence[Stretch], ranks: Sequence[int]) -> float:
    """The part of the step in which a rank communicates and does not compute; mean over ranks."""
    # BEGIN SOLUTION: exposed share
    exposed = sum(share.exposed for share in shares(trace, ranks).values())
    return exposed / len(ranks) / step_seconds(trace)
    # END SOLUTION


def utilisation(trace: Sequence[Stretch], ranks: Sequence[int], job: Job) -> tuple[float, float]:
    """MFU and HFU of the step, both 0 to 1."""
    # BEGIN SOLUTION: utilisation
    able = step_seconds(trace) * len(ranks) * job.peak  # mutate: same
    forward = 2 * job.parameters * job.tokens
    return 3 * forward / able, (3 + job.recompute) * forward / able
    # END SOLUTION


def straggler(trace: Sequence[Stretch], ranks: Sequence[int]) -> int | None:
    """The global rank that cost the others most; None if it is less than a microsecond."""
    # BEGIN SOLUTION: straggler
    calls: dict[tuple[tuple[int, ...], int], list[Stretch]] = {}
    for s in trace:  # mutate: same
        if s.kind == "communication" and s.name not in ("send", "recv"):
            calls.setdefault((s.group, s.seq), []).append(s)
    waits: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for call in calls.values():  # mutate: same
        last = max(call, key=lambda s: s.begin)
        for s in call:
            waits.setdefault((last.rank, s.rank), []).append((s.begin, last.begin))
    lost = dict.fromkeys(ranks, 0.0)
    for (late, rank), intervals in waits.items():
        work = times(trace, rank, "compute")
        lost[late] += covered(intervals + work) - covered(work)
    worst = max(ranks, key=lambda rank: lost[rank])
    return worst if lost[worst] >= 1e-6 else None
    # END SOLUTION


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
