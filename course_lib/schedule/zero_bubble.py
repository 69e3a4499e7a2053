"""Schedules whose backward is cut in two: weights' gradients wait until a rank has nothing to do.

Notebook: 08 Pipeline parallel (zero_bubble, dualpipe_v).
Paper: Qi et al., "Zero Bubble Pipeline Parallelism" (2023), section 3 (ZB-H1); Qi et al., "Pipeline
Parallelism with Controllable Memory" (2024) (ZB-V); DeepSeek-AI, "DeepSeek-V3" (2024) and its
DualPipe, in the V form with both directions folded onto the same ranks.
Costs, with tF = tI = tW = t of a rank's whole part and m from 2p on; 1F1B waits 3(p-1)t:
    schedule     a rank waits, in all       between its first action and its last    activations
    ZB-H1        (p-1)(tF+tI-tW) = (p-1)t   up to (p-1)t                             p
    ZB-V         (p-1)t/2                   0                                        2p halves
    DualPipeV    (p-1)t/2                   up to (p-1)t/2                           2p+1 halves
ZB-H1's formula holds for m from p on and tW at most tF and tI: a W must fit where a rank waits.
The production version runs a forward and a backward of DualPipeV at the same time, so that one's
messages hide behind the other's computation; here they follow each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from course_lib.schedule.action import Action, ScheduleError
from course_lib.schedule.classic import check_sizes
from course_lib.schedule.schedule import Schedule


def zb_h1(p: int, m: int) -> Schedule:
    """1F1B whose backward is cut in two; on rank r the weight half comes r micro-batches later.

    The input half alone is what the rank before waits for, so it goes first. Rank r of 1F1B holds
    r micro-batches less than rank 0; here it keeps that many until their weight halves run, in the
    time in which it would wait at the end.

    Args:
        p: ranks, a stage on each.
        m: micro-batches.

    Raises:
        ScheduleError: p or m is below 1, or there are more forwards than fit into memory.
    """
    check_sizes("ZB-H1", p, m)
    lines = []
    for r in range(p):
        warm = min(m, p - 1 - r)
        line = [Action(r, "F", k) for k in range(warm)]
        for k in range(m):
            if warm + k < m:
                line.append(Action(r, "F", warm + k))
            line.append(Action(r, "I", k))
            if k >= r:
                line.append(Action(r, "W", k - r))
        lines.append(line + [Action(r, "W", k) for k in range(max(m - r, 0), m)])
    return Schedule.of("ZB-H1", lines)


def zb_v(p: int, m: int) -> Schedule:
    """Two chunks a rank, placed like a V: the rank that begins a micro-batch also ends it.

    Rank r has the stages r and 2p-1-r. A micro-batch goes down the ranks and up again, its backward
    the same way. If F, I and W take equally long, a rank never waits between its first forward and
    its last weight gradient.

    Args:
        p: ranks.
        m: micro-batches. Below 2p-1 it is the pattern of 2p-1 with the missing ones left out, so
            ranks wait.

    Raises:
        ScheduleError: p or m is below 1, or there are more forwards than fit into memory.
    """
    check_sizes("ZB-V", p, m)
    full = max(m, 2 * p - 1)
    check_sizes("ZB-V", p, full)
    lines = []
    for r in range(p):
        rising, steady = 2 * (p - r) - 1, full - (2 * p - 1) + r
        phases = [
            ("F0", rising),
            ("F1 F0", r),
            ("F1 I1 W1", p - r),
            ("F0 I0 W0 F1 I1 W1", steady),
            ("I0 W0 F1 I1 W1", full - p - steady),
            ("I0 I1", r),
            ("I0 W0", p - r),
            ("W1", r),
            ("W0", r),
        ]
        lines.append(_play(phases, (r, 2 * p - 1 - r), m))
    return Schedule.of("ZB-V", lines)


def dualpipe_v(p: int, m: int) -> Schedule:
    """DualPipe folded: stages placed like a V, forwards of one chunk beside backwards of the other.

    In its long middle part each rank runs a forward of one chunk and a backward of the other in
    turn. These two do not depend on each other, so a machine can run them at the same time, and
    hide the messages (DeepSeek: those of the experts) of one behind the products of the other.

    Args:
        p: ranks.
        m: micro-batches, 2p or more.

    Raises:
        ScheduleError: m is below 2p, or as for the others.
    """
    check_sizes("DualPipeV", p, m)
    if m < 2 * p:
        raise ScheduleError(
            f"DualPipeV of {p} ranks and {m} micro-batches",
            f"fewer than {2 * p} micro-batches",
            "the pipeline is filled from both ends: it needs two for each rank",
        )
    lines = []
    for r in range(p):
        late = p - 1 - r
        # Of the last r+1 backwards of both chunks, the second half put off their weights.
        whole = (r + 1) // 2
        turn = [("B1 B0", whole), *([] if r % 2 else [("B1 I0", 1)]), ("I1 I0", (r + 1) // 2)]
        phases = [
            ("F0", 2 * late),
            ("F0 F1", r + 1),
            ("I1 W F1", late),
            ("F0 B1 F1 B0", m - 2 * p + r + 1),
            ("B1 F1 B0", late),
            *turn,
            ("W I0", late),
            ("W", r + 1),
        ]
        lines.append(_play(phases, (r, 2 * p - 1 - r), m))
    return Schedule.of("DualPipeV", lines)


def _play(phases: Sequence[tuple[str, int]], stages: Sequence[int], m: int) -> list[Action]:
    """Writes out the actions of one rank.

    Args:
        phases: words and how often they are repeated. `F0` is the next forward of chunk 0, `B1` and
            `I1` the next backward of chunk 1, `W1` the oldest weight gradient of chunk 1 that is
            still to come, `W` the oldest of any chunk.
        stages: the stage of each chunk.
        m: actions of micro-batches from m on are left out.
    """
    line: list[Action] = []
    next_one: Counter[str] = Counter()
    waiting: list[Action] = []
    for word in (word for words, times in phases for word in words.split() * times):
        kind, chunk = word[0], word[1:]
        if kind == "W":
            action = next(w for w in waiting if not chunk or w.stage == stages[int(chunk)])
            waiting.remove(action)
        else:
            way = ("F" if kind == "F" else "back") + chunk
            action = Action(stages[int(chunk)], kind, next_one[way])
            next_one[way] += 1
            if kind == "I":
                waiting.append(Action(action.stage, "W", action.micro))
        line.append(action)
    return [action for action in line if action.micro < m]


def zb_h2(p: int, m: int) -> Schedule:
    """More forwards at the beginning, and weights' gradients where 1F1B waits at the end.

    Rank r begins with 2(p-r)-1 forwards, twice as many as fill the pipeline. Then an input
    gradient, a weight gradient and a forward take turns, but the first 2r weight gradients are
    kept back for the end, where other ranks still work.

    Args:
        p: ranks, a stage on each.
        m: micro-batches.

    Raises:
        ScheduleError: p or m is below 1, or there are more forwards than fit into memory.
    """
    check_sizes("ZB-H2", p, m)
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
