"""How long a pipeline takes: the schedules that `parallel.pipeline` runs, in seconds.

Notebook: 08 Pipeline parallel (gpipe_step, one_f_one_b), 15 Choosing a strategy (step_time).
Paper: Narayanan et al., "Megatron-LM" (2021), section 2.2; Qi et al. (2023), section 2.
Costs about 40 µs an action; of a long schedule only the beginning is run, since from there on
every further micro-batch adds the same time.
The production version reads the bubble off a trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from course_lib.schedule import Costs, make_schedule, simulate

ACTIONS = 6000  # of a schedule that is run to its end
FULL = 3  # times p micro-batches of a longer one are run


@dataclass(frozen=True)
class Pipeline:
    """A pipeline in seconds.

    Attributes:
        seconds: from the first action to the last; where no rank waits for the others' end, the
            time of the rank that is busy longest.
        busy: seconds of work on each rank.
    """

    seconds: float
    busy: tuple[float, ...]


def _run(name: str, p: int, m: int, chunks: int, costs: Sequence[Costs]) -> Pipeline:
    schedule = make_schedule(name, p, m, chunks)
    run = simulate(schedule, costs)
    busy = tuple(run.makespan - run.idle(rank) for rank in range(p))
    # ZB-H2 checks gradients after the update, so ranks begin the next step without the others.
    spans = [line[-1].end - line[0].begin for line in run.slots]
    return Pipeline(max(spans) if name == "ZB-H2" else run.makespan, busy)


def pipeline(name: str, p: int, m: int, chunks: int, costs: Sequence[Costs]) -> Pipeline:
    """Runs a schedule with the seconds of each stage.

    A schedule of more than `ACTIONS` is run for 2p and 3p micro-batches, and the rest is a straight
    line through these two. That is exact if all stages but the last are equal: then each rank
    repeats the same p micro-batches in the middle. With stages that differ by tenths it is within
    2 %, since the slowest one takes longer to set the pace of all.

    Args:
        name: of the schedule.
        p: ranks.
        m: micro-batches.
        chunks: stages on each rank, for interleaved 1F1B.
        costs: of every stage.

    Raises:
        ScheduleError: no such schedule, or not of such sizes.
    """
    if p == 1:
        work = m * sum(cost.forward + cost.input + cost.weight for cost in costs)
        return Pipeline(work, (work,))
    if m <= (FULL + 1) * p or 2 * m * len(costs) <= ACTIONS:
        return _run(name, p, m, chunks, costs)
    rest = m % p  # the interleaved one takes none, and says so
    one, two = (_run(name, p, k * p + rest, chunks, costs) for k in (FULL - 1, FULL))
    more = (m - FULL * p - rest) / p
    return Pipeline(
        two.seconds + more * (two.seconds - one.seconds),
        tuple(b + more * (b - a) for a, b in zip(one.busy, two.busy, strict=True)),
    )
