"""Schedules by name: what a command line, a layout on paper and a slider choose among.

Notebook: 08 Pipeline parallel, 13 3D parallelism, 15 Choosing a strategy.
Source: the names are those of the papers that each schedule's file cites.
Costs nothing.
The production version (torch.distributed.pipelining.get_schedule_class) finds a class by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from course_lib.schedule.action import ScheduleError
from course_lib.schedule.classic import gpipe, interleaved_1f1b, one_f_one_b
from course_lib.schedule.schedule import Schedule
from course_lib.schedule.zero_bubble import dualpipe_v, zb_h1, zb_v

# Each takes p ranks, m micro-batches and v chunks a rank; only the interleaved one uses v.
SCHEDULES: Mapping[str, Callable[[int, int, int], Schedule]] = {
    "GPipe": lambda p, m, v: gpipe(p, m),
    "1F1B": lambda p, m, v: one_f_one_b(p, m),
    "interleaved 1F1B": interleaved_1f1b,
    "ZB-H1": lambda p, m, v: zb_h1(p, m),
    "ZB-V": lambda p, m, v: zb_v(p, m),
    "DualPipeV": lambda p, m, v: dualpipe_v(p, m),
}


def make_schedule(name: str, p: int, m: int, v: int = 1) -> Schedule:
    """The schedule of that name.

    Args:
        name: one of `SCHEDULES`.
        p: ranks.
        m: micro-batches.
        v: chunks on each rank, for the interleaved one.

    Raises:
        ScheduleError: there is none of this name, or it cannot be made for these numbers.
    """
    if name not in SCHEDULES:
        raise ScheduleError(f"the schedule {name!r}", ", ".join(SCHEDULES), "one of these is meant")
    return SCHEDULES[name](p, m, v)
