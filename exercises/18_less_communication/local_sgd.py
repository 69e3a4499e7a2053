"""Local SGD: some steps on each rank alone, then the mean of the weights.

Notebook 18. Every rank has a replica and data of its own. It trains with an optimizer of its own,
without a word to the others, and every H steps all ranks meet:

    weights  ←  mean of the weights over the group

Rules
- After construction all parameters have the values of index 0 of the group.
- `step()` makes one step of the optimizer; after step H, 2H, 3H, ... it is followed by a meeting.
- What a rank's optimizer remembers (momentum, Adam's moments) is neither sent nor changed.
- Parameters stay the objects that they are. Those that need no gradient send nothing in a meeting.
- A meeting sends 2(N-1)/N·S bytes, S those of the trained parameters. Nothing else is sent.

Free to use: torch, and all of `course_lib.comm`. The group need not be the whole world.

Your answer may use `comm` of `course_lib`.
"""

from typing import Any

import torch

from course_lib.comm import Group, all_reduce, broadcast


class LocalSGD:
    """An optimizer whose ranks meet every so many steps.

    Args:
        optimizer: of this rank's replica; any of torch's.
        group: the ranks that meet.
        every: H, at least 1.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, group: Group, every: int) -> None:
        self.optimizer, self.group, self.every = optimizer, group, every
        raise NotImplementedError("local_sgd: begin with the weights of index 0")

    def step(self) -> None:
        """One step alone, and a meeting if it is time."""
        raise NotImplementedError("local_sgd: step, and meet")

    def zero_grad(self, *args: Any) -> None:
        """The optimizer's own."""
        self.optimizer.zero_grad(*args)
