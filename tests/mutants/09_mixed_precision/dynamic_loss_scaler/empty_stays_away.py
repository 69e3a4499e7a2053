"""mutant: deadlock"""

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import nn

from course_lib.comm import Group, all_reduce


class DynamicLossScaler:
    """A loss scale that all ranks raise, lower and skip steps by together.

    Args:
        group: the ranks that make updates together.
        scale: the first scale.
        growth: what the scale is multiplied by after `interval` good updates in a row.
        backoff: what it is multiplied by after an overflow.
        interval: how many good updates it takes.
    """

    def __init__(
        self, group: Group, scale: float, growth: float, backoff: float, interval: int
    ) -> None:
        self.group, self.scale = group, scale
        self.growth, self.backoff, self.interval = growth, backoff, interval
        self.good = 0  # updates in a row without an overflow
        self.overflow = False  # of this update, on any rank

    def scale_loss(self, loss: torch.Tensor) -> torch.Tensor:
        """The loss to call `backward` of."""
        return loss * self.scale

    @torch.no_grad()
    def unscale(self, parameters: Iterable[nn.Parameter]) -> None:
        """Divides the gradients by the scale, in place; learns whether any rank overflowed."""
        parameters = list(parameters)
        if all(p.grad is None for p in parameters):
            return
        flag = torch.zeros(())
        for parameter in parameters:
            if parameter.grad is not None:
                if not parameter.grad.isfinite().all():
                    flag.fill_(1.0)
                parameter.grad.div_(self.scale)
        all_reduce(flag, self.group, "max")
        self.overflow = bool(flag)

    def step(self, optimizer: torch.optim.Optimizer) -> bool:
        """Makes the step unless a rank overflowed; returns whether it was made."""
        if not self.overflow:
            optimizer.step()
        return not self.overflow

    def update(self) -> None:
        """Lowers the scale, or counts a good update, which may raise it."""
        self.good = 0 if self.overflow else self.good + 1
        if self.overflow:
            self.scale *= self.backoff
        elif self.good == self.interval:
            self.scale *= self.growth
            self.good = 0


def train_update(
    scaler: DynamicLossScaler,
    loss: torch.Tensor,
    parameters: Sequence[nn.Parameter],
    optimizer: torch.optim.Optimizer,
    clip: Callable[[], None],
) -> bool:
    """One update: backward of the scaled loss, clip, step.

    Args:
        scaler: of the ranks that make the update together.
        loss: this rank's, not scaled yet.
        parameters: this rank's.
        optimizer: of these parameters.
        clip: clips their gradients in place.

    Returns:
        Whether the step was made.
    """
    optimizer.zero_grad()
    scaler.scale_loss(loss).backward()
    scaler.unscale(parameters)
    clip()
    made = scaler.step(optimizer)
    scaler.update()
    return made
