"""no_sync: several backwards, one synchronisation.

Notebook 03. `DDP` below is complete except for one method. Every backward ends by averaging all
gradients over the group. If an update has k micro-batches, that is k-1 times too often: the
gradients can add up on each rank, and their sum is averaged once.

Write two things:

1. `no_sync()`, a context manager, called anew for each `with`: inside, `synchronises` is False.
   Afterwards it has the value that it had before, even if `no_sync()` was used inside another
   `no_sync()`, and even if an exception was raised inside, which goes on. The gradients are left
   alone: the next backward that synchronises averages all that has added up in them.
2. `train_epoch`, a training loop that uses it. Each update takes k micro-batches; if fewer are left
   at the end of the epoch, they make an update as well. The loss of an update is the mean over its
   micro-batches (all of one size). The loop zeroes the gradients at the beginning of an update, and
   synchronises them once in it. Each micro-batch runs its forward and its backward before the next
   one begins, so that only one graph is held at a time.

Note when the decision is made: like torch's, this DDP looks at `synchronises` in the *forward*, and
the backward does what the value in that forward says. Make no collective calls yourself, and leave
the rest of the class as it is.

Your answer may use `comm` of `course_lib`.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext

import torch
from torch import nn

from course_lib.comm import Group, all_reduce, broadcast


class DDP(nn.Module):
    """Replicas whose gradients are averaged when a backward ends.

    Args:
        module: the model.
        group: the ranks.
    """

    def __init__(self, module: nn.Module, group: Group) -> None:
        super().__init__()
        self.module, self.group = module, group
        self.synchronises = True
        self._captured = False  # what `synchronises` was in the last forward
        self._asked = False  # whether this backward will call `_average`
        self._trained = [p for p in module.parameters() if p.requires_grad]
        for parameter in module.parameters():
            broadcast(parameter.detach(), 0, group)
        for parameter in self._trained:
            parameter.register_post_accumulate_grad_hook(self._on_gradient)

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        """The model's forward; remembers whether its backward is to synchronise."""
        self._captured = self.synchronises
        return self.module(*inputs)

    def _on_gradient(self, parameter: torch.Tensor) -> None:
        """Called by autograd for each gradient; the first one asks it to call `_average`."""
        if self._captured and not self._asked:
            self._asked = True
            torch.autograd.Variable._execution_engine.queue_callback(self._average)

    def _average(self) -> None:
        """The backward has ended: all gradients, with all that was added up in them."""
        self._asked = False
        for parameter in self._trained:
            if parameter.grad is None:  # not used in any forward here
                parameter.grad = torch.zeros_like(parameter)
            all_reduce(parameter.grad, self.group, "avg")

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """If a forward is made inside, its backward does not synchronise."""
        raise NotImplementedError("no_sync: write your answer here")


def train_epoch(
    ddp: DDP,
    optimizer: torch.optim.Optimizer,
    loss_fn: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    micro_batches: Sequence[tuple[torch.Tensor, torch.Tensor]],
    k: int,
) -> None:
    """Makes one pass over the micro-batches, with an update for every k of them.

    Args:
        ddp: the model.
        optimizer: the optimizer of its parameters.
        loss_fn: takes one micro-batch's outputs and targets, and returns its mean loss.
        micro_batches: (inputs, targets) each, all of one size; equally many on every rank.
        k: micro-batches in an update; the last update of the epoch may have fewer.
    """
    raise NotImplementedError("no_sync: write your answer here")
