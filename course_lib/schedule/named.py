"""Schedules by name: what a command line, a layout on paper and a slider choose among.

Notebook: 08 Pipeline parallel, 13 3D parallelism, 15 Choosing a strategy.
Source: the names are those of the papers that each schedule's file cites.
Costs nothing.
The production version (torch.distributed.pipelining.get_schedule_class) finds a class by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from course_lib.schedule.action import ScheduleError
from course_lib.schedule.classic import gpipe, interleaved_1f1b, one_f_one_b
from course_lib.schedule.schedule import Schedule
from course_lib.schedule.zero_bubble import dualpipe_v, zb_h1, zb_h2, zb_v


@dataclass(frozen=True)
class Kind:
    """What is known of a schedule by its name.

    Attributes:
        make: the schedule of p ranks, m micro-batches and v chunks on each rank.
        word: its name on a command line; empty where it is only planned with.
        chunks: stages on each rank; 0 for as many as are asked for.
        halves: whether backwards come in halves, so that messages travel beside computation. In
            the others, as they were first written, a rank waits for each message.
        wait: how long p ranks wait, in (p-1)/m of their work and over the chunks; 0 where the
            planner's search leaves the schedule out.
        published: what tables of published runs call it, if not by its name here.
    """

    make: Callable[[int, int, int], Schedule]
    word: str = ""
    chunks: int = 1
    halves: bool = False
    wait: float = 0.0
    published: str = ""

    def __call__(self, p: int, m: int, v: int = 1) -> Schedule:
        """The schedule of these sizes."""
        return self.make(p, m, v)

    def stages(self, p: int, v: int) -> int:
        """How many stages p ranks have together."""
        return p * (self.chunks or v)


KINDS: Mapping[str, Kind] = MappingProxyType({
    "GPipe": Kind(lambda p, m, v: gpipe(p, m), "gpipe"),
    "1F1B": Kind(lambda p, m, v: one_f_one_b(p, m), "1f1b", wait=1.0),
    "interleaved 1F1B": Kind(interleaved_1f1b, "interleaved", chunks=0, wait=1.0,
                             published="1F1B-I"),
    "ZB-H1": Kind(lambda p, m, v: zb_h1(p, m), "zb-h1", halves=True, wait=1 / 3,
                  published="ZB-1p"),
    "ZB-H2": Kind(lambda p, m, v: zb_h2(p, m), halves=True, published="ZB-2p"),
    "ZB-V": Kind(lambda p, m, v: zb_v(p, m), "zb-v", chunks=2, halves=True),
    "DualPipeV": Kind(lambda p, m, v: dualpipe_v(p, m), "dualpipe-v", chunks=2, halves=True),
})  # fmt: skip
SCHEDULES: Mapping[str, Kind] = MappingProxyType(
    {name: kind for name, kind in KINDS.items() if kind.word}
)


def kind_of(name: str) -> Kind:
    """What is known of a name.

    Raises:
        ScheduleError: nothing is.
    """
    if name not in KINDS:
        raise ScheduleError(f"the schedule {name!r}", ", ".join(KINDS), "one of these is meant")
    return KINDS[name]


def make_schedule(name: str, p: int, m: int, v: int = 1) -> Schedule:
    """The schedule of that name.

    Args:
        name: one of `KINDS`.
        p: ranks.
        m: micro-batches.
        v: chunks on each rank, for the interleaved one.

    Raises:
        ScheduleError: there is none of this name, or it cannot be made for these numbers.
    """
    return kind_of(name)(p, m, v)
