"""Three schedules with whole backwards: GPipe, 1F1B, and 1F1B over several chunks a rank.

Notebook: 08 Pipeline parallel (gpipe_step, one_f_one_b, interleaved_1f1b).
Paper: Huang et al., "GPipe" (2019); Narayanan et al., "PipeDream" (2019) and "Megatron-LM" (2021),
section 2.2, whose order of the chunks this is.
Costs, with p ranks, m micro-batches, v chunks, tF and tB of a rank's whole part of the model:
    schedule      bubble                  activations held on rank r       messages a micro-batch
    GPipe         (p-1)(tF+tB)            m                                2(p-1)
    1F1B          (p-1)(tF+tB)            min(m, p-r)                      2(p-1)
    interleaved   (p-1)(tF+tB)/v          up to (v-1)p + 2(p-r) - 1 of 1/v each  2(v·p-1)
The production version also cuts the last, smaller batch and reorders for uneven stages.
"""

from __future__ import annotations

from course_lib.schedule.action import Action, ScheduleError
from course_lib.schedule.schedule import Schedule

LARGEST = 10**7  # forwards of all ranks: about 2 GB of actions


def check_sizes(name: str, p: int, m: int, v: int = 1) -> None:
    """Refuses sizes that are not whole numbers from 1 on, and schedules too large for memory.

    Raises:
        ScheduleError: a size is below 1, or there are more forwards than `LARGEST`.
    """
    asked = f"{name} of {p} ranks, {m} micro-batches and {v} chunks a rank"
    wrong = [size for size in (p, m, v) if not isinstance(size, int) or size < 1]
    if wrong:
        raise ScheduleError(asked, f"{wrong[0]!r}", "there is at least one of each")
    if p * m * v > LARGEST:
        why = f"a schedule lists every action: it has at most {LARGEST:,} forwards"
        raise ScheduleError(asked, f"{p * m * v:,} forwards", why)


def gpipe(p: int, m: int) -> Schedule:
    """All forwards, then all backwards.

    Args:
        p: ranks, a stage on each.
        m: micro-batches.

    Raises:
        ScheduleError: p or m is below 1.
    """
    check_sizes("GPipe", p, m)
    lines = [[Action(r, kind, k) for kind in "FB" for k in range(m)] for r in range(p)]
    return Schedule.of("GPipe", lines)


def one_f_one_b(p: int, m: int) -> Schedule:
    """Forwards until the last rank has work; then one forward and one backward in turn.

    Rank r begins with p-1-r forwards, or with all m if there are fewer.

    Args:
        p: ranks, a stage on each.
        m: micro-batches.

    Raises:
        ScheduleError: p or m is below 1.
    """
    check_sizes("1F1B", p, m)
    lines = []
    for r in range(p):
        warm = min(m, p - 1 - r)
        line = [Action(r, "F", k) for k in range(warm)]
        for k in range(m - warm):
            line += [Action(r, "F", warm + k), Action(r, "B", k)]
        lines.append(line + [Action(r, "B", k) for k in range(m - warm, m)])
    return Schedule.of("1F1B", lines)


def interleaved_1f1b(p: int, m: int, v: int) -> Schedule:
    """1F1B where each rank holds v chunks of the model: rank r has the stages r, r+p, r+2p, ...

    A rank runs p micro-batches through one chunk, then the same p through its next one, so the
    pipeline fills in 1/v of the time. With v = 1 it is 1F1B.

    Args:
        p: ranks.
        m: micro-batches, a multiple of p.
        v: chunks a rank.

    Raises:
        ScheduleError: a size is below 1, or p does not divide m.
    """
    check_sizes("interleaved 1F1B", p, m, v)
    if m % p:
        raise ScheduleError(
            f"interleaved 1F1B of {p} ranks and {m} micro-batches",
            f"{m % p} micro-batches left over",
            f"micro-batches go through a chunk {p} at a time: take a multiple of {p}",
        )

    def chunk_and_micro(k: int) -> tuple[int, int]:
        """The k-th forward of every rank: rounds of p micro-batches through v chunks."""
        cycle, place = divmod(k, p * v)
        return place // p, cycle * p + place % p

    lines = []
    for r in range(p):
        forwards = [Action(c * p + r, "F", k) for c, k in map(chunk_and_micro, range(m * v))]
        backwards = [
            Action((v - 1 - c) * p + r, "B", k) for c, k in map(chunk_and_micro, range(m * v))
        ]
        # With several chunks, Megatron's order runs p-1-r more forwards first than it would need to
        # if messages took no time. In this slack, messages travel.
        warm = p - 1 - r if v == 1 else 2 * (p - 1 - r) + (v - 1) * p
        warm = min(warm, m * v)
        line = forwards[:warm]
        for k in range(m * v - warm):
            line += [forwards[warm + k], backwards[k]]
        lines.append(line + backwards[m * v - warm :])
    return Schedule.of("interleaved 1F1B", lines)
