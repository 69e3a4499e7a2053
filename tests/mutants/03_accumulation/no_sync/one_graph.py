"""mutant: forwards and backwards do not alternate, several micro-batches are held"""

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
        """Backwards of forwards made inside do not synchronise."""
        before, self.synchronises = self.synchronises, False
        try:
            yield
        finally:
            self.synchronises = before


def train_epoch(
    ddp: DDP,
    optimizer: torch.optim.Optimizer,
    loss_fn: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    micro_batches: Sequence[tuple[torch.Tensor, torch.Tensor]],
    k: int,
) -> None:
    """One pass over the micro-batches, with an update for every k of them.

    Args:
        ddp: the model.
        optimizer: of its parameters.
        loss_fn: outputs and targets of one micro-batch to the mean loss of that micro-batch.
        micro_batches: (inputs, targets) each, all of one size; equally many on every rank.
        k: micro-batches of an update; the last update of the epoch may have fewer.
    """
    for begin in range(0, len(micro_batches), k):
        window = micro_batches[begin : begin + k]
        optimizer.zero_grad()
        losses = [loss_fn(ddp(inputs), targets) / len(window) for inputs, targets in window]
        torch.stack(losses).sum().backward()
        optimizer.step()
