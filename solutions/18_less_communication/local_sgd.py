"""Local SGD: each rank takes some steps alone, then all take the mean of their weights.

Notebook 18. Every rank has a replica of the model, its own data and its own optimizer. It trains
without communication, and every H steps all ranks meet:

    weights  ←  mean of the weights over the group

Rules
- After construction, all parameters have the values of index 0 of the group, including parameters
  that need no gradient.
- `step()` takes one step of the optimizer. After step H, 2H, 3H, ... a meeting follows.
- The state of a rank's optimizer (momentum, Adam's moments) is neither sent nor changed, and `step`
  leaves gradients as they are. A parameter that has no gradient in a step meets all the same.
- The parameters, which may be strided, stay the same objects in the same memory. Those that need no
  gradient send nothing in a meeting.
- A meeting sends 2(N-1)/N·S bytes from each rank, where S is the size of the trained parameters.
  After construction, nothing else is sent.

You may use torch and all of `course_lib.comm`. The group need not be the whole world.
"""

from typing import Any

import torch

from course_lib.comm import Group, all_reduce, broadcast


class LocalSGD:
    """An optimizer whose ranks meet every few steps.

    Args:
        optimizer: the optimizer of this rank's replica; any optimizer of torch.
        group: the ranks that meet.
        every: H, the steps between two meetings; at least 1.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, group: Group, every: int) -> None:
        self.optimizer, self.group, self.every = optimizer, group, every
        # BEGIN SOLUTION: begin with the weights of index 0
        self.steps = 0
        self.parameters = [p for g in optimizer.param_groups for p in g["params"]]
        for parameter in self.parameters:
            broadcast(parameter.detach(), 0, group)
        # END SOLUTION

    def step(self) -> None:
        """Takes one step of this rank alone, and meets the others when a meeting is due."""
        # BEGIN SOLUTION: step, and meet
        self.optimizer.step()
        self.steps += 1
        if self.steps % self.every == 0:
            for parameter in self.parameters:
                if parameter.requires_grad:
                    all_reduce(parameter.detach(), self.group, "avg")
        # END SOLUTION

    def zero_grad(self, *args: Any) -> None:
        """Calls the optimizer's own `zero_grad`."""
        self.optimizer.zero_grad(*args)
