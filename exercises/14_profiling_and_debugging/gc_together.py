"""gc_together: Python's collector costs every rank its neighbours' pauses; let all pause together.

Notebook 14. CPython's collector looks for circles of objects whenever so many have been made. Each
rank counts its own objects, so each stops at another time, and in a step all wait for whoever stops
in it. Here you compute from a trace what that costs, and write the remedy: no rank collects of its
own accord, and all of them do in the same step.

`saved`: what would each call gain if there were no collector? A rank begins a call after some work,
and some of the time since its call before went into pauses. Without them it would have come so much
earlier. The call goes on when the *last* rank is there: so it gains the difference between the time
when the last came, and the time when the last would have come. That is often less than the longest
pause, and never more.

`Together` is a context manager around the training loop.
- When it is entered it collects once, and then freezes what is left (`gc.freeze`), so that later
  collections need not look at it. From then on the collector does not run by itself.
- `step(number, held)` is called on all ranks behind step `number`, from wherever a run went on; the
  numbers are the same on all ranks. If `number + 1` is a multiple of `every`, all ranks collect,
  and nothing is sent. Else they ask each other whether somebody holds more than `most` bytes, with
  one all-reduce of one number; if so, *all* collect. It returns whether it collected.
- A collection is of all generations (`gc.collect()`), once a step at most.
- When it is left, also by an exception (which goes on), what was frozen is thawed
  (`gc.unfreeze`), and the collector runs by itself if it did so before.

`gc.isenabled`, `gc.disable` and `gc.enable` are what else you need.

Your answer may use `comm` of `course_lib`.
"""

import gc
from collections.abc import Sequence
from typing import Any

import torch

from course_lib.comm import Group, all_reduce

Pause = tuple[float, float]  # begin and end, in seconds


def saved(begins: torch.Tensor, pauses: Sequence[Sequence[Pause]]) -> torch.Tensor:
    """Seconds by which each call would go on earlier without the collector.

    Args:
        begins: float64 [N, calls], when each rank began each call, on one clock. A rank that has
            begun a call does nothing else until it ends, which is the same moment on all ranks.
        pauses: for each rank when its collector ran, in any order; a pause ends before the next
            call begins. What was before the first call counts for the first call.

    Returns:
        float64 [calls].
    """
    raise NotImplementedError("gc_together: saved")


class Together:
    """All ranks collect in the same steps.

    Args:
        group: the ranks.
        every: steps from one collection to the next.
        most: bytes that a rank may hold before all collect.
    """

    def __init__(self, group: Group, every: int, most: int) -> None:
        self.group, self.every, self.most = group, every, most

    def __enter__(self) -> "Together":
        raise NotImplementedError("gc_together: __enter__")
        return self

    def step(self, number: int, held: int) -> bool:
        """Collects if it is time.

        Args:
            number: of the training step that has just ended, from 0.
            held: bytes that this rank holds.

        Returns:
            Whether it collected; the same on all ranks.
        """
        raise NotImplementedError("gc_together: step")

    def __exit__(self, *error: Any) -> None:
        raise NotImplementedError("gc_together: __exit__")
