"""ZB-H2: a pipeline without waiting, for twice the activations.

Notebook: 08 Pipeline parallel (zero_bubble), 15 Choosing a strategy (step_time).
Paper: Qi et al., "Zero Bubble Pipeline Parallelism" (2023), section 3.2 and figure 3.
Costs, with p ranks: 2p-1 micro-batches in flight on each rank, where 1F1B has p on the first; a
rank never waits between its first action and its last, if F, I and W take equally long.
The production version finds the order by search, from the measured times of each.
"""

from __future__ import annotations

from course_lib.schedule import Action, Schedule, ScheduleError


def zb_h2(p: int, m: int) -> Schedule:
    """More forwards at the beginning, and weights' gradients where 1F1B waits at the end.

    Rank r begins with 2(p-r)-1 forwards, twice as many as fill the pipeline. Then an input
    gradient, a weight gradient and a forward take turns, but the first 2r weight gradients are
    kept back for the end, where other ranks still work.

    Args:
        p: ranks, a stage on each.
        m: micro-batches.

    Raises:
        ScheduleError: p or m is below 1.
    """
    if min(p, m) < 1:
        raise ScheduleError(
            f"ZB-H2 of {p} ranks and {m} micro-batches",
            f"{min(p, m)}",
            "there is at least one of each",
        )
    lines = []
    for r in range(p):
        warm = min(m, 2 * (p - r) - 1)
        line = [Action(r, "F", k) for k in range(warm)]
        weight = 0
        for k in range(m):
            line.append(Action(r, "I", k))
            if k >= 2 * r:
                line.append(Action(r, "W", weight))
                weight += 1
            if warm + k < m:
                line.append(Action(r, "F", warm + k))
        lines.append(line + [Action(r, "W", k) for k in range(weight, m)])
    return Schedule.of("ZB-H2", lines)
