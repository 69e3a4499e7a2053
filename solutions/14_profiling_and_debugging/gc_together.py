"""gc_together: ranks wait for each other's garbage collections, so let all collect together.

Notebook 14. CPython's collector looks for cycles of objects after a certain number have been made.
Each rank counts its own objects, so each pauses at a different time, and in every step all wait for
the ranks that pause in it. Here you compute from a trace what that costs, and write the remedy: no
rank collects on its own, and all collect in the same step.

`saved`: what would each call gain if there were no collector? A rank begins a call after some work,
and some of the time since its call before went into pauses. Without these pauses, it would have
come earlier by that time. The call proceeds when the *last* rank is there. So it gains the
difference between the time at which the last rank came and the time at which the last rank would
have come. That is never more than the longest pause, and often less.

`Together` is a context manager around the training loop.
- When it is entered it collects once, and then freezes what is left (`gc.freeze`), so that later
  collections need not look at it. From then on the collector does not run by itself.
- `step(number, held)` is called on all ranks after step `number`; a resumed run need not begin at
  0, but the numbers are the same on all ranks. If `number + 1` is a multiple of `every`, all ranks
  collect, and nothing is sent. Otherwise one all-reduce of one number tells them whether any rank
  holds more than `most` bytes; if so, *all* collect. It returns whether it collected.
- A collection covers all generations (`gc.collect()`), and happens at most once per step.
- When it is left, even by an exception (which must propagate), it unfreezes what was frozen
  (`gc.unfreeze`), and enables the collector if it was enabled before.

You also need `gc.isenabled`, `gc.disable` and `gc.enable`.
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
    # BEGIN SOLUTION: saved
    own = torch.zeros_like(begins)
    for rank, stops in enumerate(pauses):
        for begin, end in stops:
            call = int((begins[rank] <= begin).sum())
            if call < begins.shape[1]:  # behind the last call it holds up nobody
                own[rank, call] += end - begin
    return begins.max(0).values - (begins - own).max(0).values
    # END SOLUTION


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
        # BEGIN SOLUTION: __enter__
        self.ran_by_itself = gc.isenabled()
        gc.disable()  # mutate: same
        gc.collect()  # before the freeze, or garbage would be frozen too
        gc.freeze()
        # END SOLUTION
        return self

    def step(self, number: int, held: int) -> bool:
        """Collects if it is time.

        Args:
            number: of the training step that has just ended, from 0.
            held: bytes that this rank holds.

        Returns:
            Whether it collected; the same on all ranks.
        """
        # BEGIN SOLUTION: step
        if (number + 1) % self.every:
            full = torch.tensor([held > self.most], dtype=torch.int64)
            all_reduce(full, self.group, "max")
            if not full:
                return False
        gc.collect()
        return True
        # END SOLUTION

    def __exit__(self, *error: Any) -> None:
        # BEGIN SOLUTION: __exit__
        gc.unfreeze()  # mutate: same
        if self.ran_by_itself:
            gc.enable()
        # END SOLUTION
