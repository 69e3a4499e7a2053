"""DynamicLossScaler: multiply the loss, and when one rank overflows, skip the step on all.

Notebook 09. Gradients are small numbers, and the smallest fp16 number is 6e-8: much of a gradient
would be flushed to zero. So the loss is multiplied by a large scale before its backward, and every
gradient comes out that much larger. If the scale is too large, some of them become infinite or NaN;
then the update is skipped and the scale is lowered. After `interval` good updates in a row it is
raised again. The ranks have different gradients (shards, for example), so one can overflow where
the others do not. If it skipped the update alone, the ranks' weights would no longer match, and
nobody would notice.

Rules for DynamicLossScaler:

- `scale` is the scale, a float, the same on every rank at all times.
- `scale_loss(loss)` is the loss times the scale.
- `unscale(parameters)` divides every gradient by the scale, in place (it may be a view of a
  bucket). It finds out whether any gradient of any rank is infinite or NaN. Parameters may come
  from a generator, and may have no gradient; a rank may have no gradient at all.
- `step(optimizer)` calls the optimizer's `step`, unless there was an overflow on any rank: AdamW
  would change the weights even if all gradients were zero. It returns whether it called it.
- `update()` ends the update. After an overflow it multiplies the scale by `backoff`, and counting
  begins again. Otherwise it counts one more good update in a row; at the `interval`-th it
  multiplies the scale by `growth`, and counting begins again.
- `unscale` makes one all-reduce of one number (at most 8 bytes) per update; nothing else is sent.

Rules for `train_update`: one update with all this, in the right order. The gradients are zeroed
first. `clip()` clips the gradients, as they are at that moment, to the norm allowed for true
(unscaled) gradients.

Gradients are float32 or float64 here: where weights are fp16, the optimizer has float32 copies of
weights and gradients.

Your answer may use `comm` of `course_lib`; of torch everything but `torch.amp.GradScaler`.
"""

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
        raise NotImplementedError("dynamic_loss_scaler: scale_loss")

    @torch.no_grad()
    def unscale(self, parameters: Iterable[nn.Parameter]) -> None:
        """Divides the gradients by the scale, in place; learns whether any rank overflowed."""
        raise NotImplementedError("dynamic_loss_scaler: unscale")

    def step(self, optimizer: torch.optim.Optimizer) -> bool:
        """Makes the step unless a rank overflowed; returns whether it was made."""
        raise NotImplementedError("dynamic_loss_scaler: step")

    def update(self) -> None:
        """Lowers the scale, or counts a good update, which may raise it."""
        raise NotImplementedError("dynamic_loss_scaler: update")


def train_update(
    scaler: DynamicLossScaler,
    loss: torch.Tensor,
    parameters: Sequence[nn.Parameter],
    optimizer: torch.optim.Optimizer,
    clip: Callable[[], None],
) -> bool:
    """One update: backward of the scaled loss, clip, step.

    Args:
        scaler: that of the ranks which update together.
        loss: this rank's loss, not yet scaled.
        parameters: this rank's.
        optimizer: of these parameters.
        clip: clips their gradients in place.

    Returns:
        Whether the optimizer's step was called.
    """
    raise NotImplementedError("dynamic_loss_scaler: train_update")
