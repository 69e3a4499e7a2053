"""Multiply the loss, so that fp16 gradients are not flushed to zero; skip a step that overflowed.

Notebook: 09 Mixed precision and FP8 (DynamicLossScaler).
Paper: Micikevicius et al., "Mixed Precision Training" (2018), section 3.2.
Costs an update: one all-reduce of 32 bytes over all ranks that step together, and one pass over the
gradients. The production version (torch.amp.GradScaler, DeepSpeed's and Megatron's own for shards)
does that pass in one fused kernel and leaves the verdict on the device.

The smallest fp16 number is 6e-8, the largest 65504: gradients are small, so there is room above.
The scale grows until something overflows and then falls back, which costs one update. A rank that
skips alone has other weights than the rest from then on, so the verdict is always the group's.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from course_lib.comm import CommError, Group, all_reduce

LARGEST = torch.finfo(torch.float32).max
SMALLEST = torch.finfo(torch.float32).tiny


class DynamicLossScaler:
    """A loss scale that all ranks of a group raise, lower and skip steps by together.

    An update, in this order:

        scaler.scale(loss).backward()
        scaler.unscale(parameters)      # those whose gradients the optimizer uses
        clip_grad_norm(parameters, 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()

    `parameters` are `model.parameters()` for one process, DDP, ZeRO-1 and FSDP, whose gradients may
    be whole or pieces; `optimizer.shard()` for ZeRO-2; `optimizer.gradients_up()` for
    `MasterWeights`. With several optimizers, unscale the parameters of all of them in one call.

    Args:
        group: every rank that has a part of this model, in whichever way it is cut.
        init: the first scale.
        growth: what the scale is multiplied by after `interval` updates without an overflow.
        backoff: what it is multiplied by after an overflow.
        interval: how many updates in a row must be made before the scale grows.

    Attributes:
        factor: the scale.
        good: updates made since the scale last changed.
        skipped: updates that were not made.

    Raises:
        CommError: a growth that does not grow, a backoff that does not fall, or no interval.
    """

    def __init__(
        self,
        group: Group,
        init: float = 2.0**16,
        growth: float = 2.0,
        backoff: float = 0.5,
        interval: int = 2000,
    ) -> None:
        if not (init > 0 and growth > 1 and 0 < backoff < 1 and interval >= 1):
            raise CommError(
                f"a loss scale that begins at {init}",
                f"growth {growth}, backoff {backoff}, interval {interval}",
                "it begins above 0, grows by more than 1, falls by less than 1, after 1 update or "
                "more",
            )
        self.group = group
        self.factor, self.growth, self.backoff, self.interval = init, growth, backoff, interval
        self.good = self.skipped = 0
        self._unscaled: list[torch.Tensor] = []
        self._overflow: bool | None = None  # of this update, once all ranks know

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        """The loss times the scale, in float32 or wider: 65536 itself is too large for fp16."""
        wide = loss.float() if loss.dtype.itemsize < 4 else loss
        return wide * self.factor

    @torch.no_grad()
    def unscale(self, parameters: Iterable[torch.Tensor]) -> bool:
        """Divides the gradients by the scale, in place, and finds out whether any rank overflowed.

        Collective: an all-reduce MAX of four numbers over the group.

        Args:
            parameters: each counts once; those without a gradient, or without an element on
                this rank, are left out.

        Returns:
            Whether a gradient of any rank is infinite or NaN: the step will be skipped.

        Raises:
            CommError: called twice for an update, fp16 gradients, no gradient on any rank, or
                scales that differ.
        """
        if self._overflow is not None:
            raise self._refusal(
                "unscale()", "gradients that are unscaled already", "once an update"
            )
        self._unscaled = [p for p in dict.fromkeys(parameters) if p.grad is not None]
        gradients = [p.grad for p in self._unscaled if p.grad is not None]
        self._check_dtypes(gradients)
        # Infinity and NaN both come through as smallest or largest, and nothing is written.
        numbers = [_numbers(g) for g in gradients]
        ends = [torch.stack(torch.aminmax(x)) for x in numbers if x.numel()]
        finite = [pair.isfinite().all() for pair in ends]
        for gradient in gradients:
            gradient.mul_(1.0 / self.factor)
        self._overflow = self._agree(bool(finite) and not bool(torch.stack(finite).all()))
        return self._overflow

    def _agree(self, overflow: bool) -> bool:
        """The verdict of all ranks, by one all-reduce, which also compares what must be equal."""
        mine = [float(overflow), float(bool(self._unscaled)), self.factor, -self.factor]
        flags = torch.tensor(mine, dtype=torch.float64, device=self.group.device)
        all_reduce(flags, self.group, "max")
        any_overflow, any_gradient, high, low = flags.tolist()
        if not any_gradient:
            raise self._refusal(
                "unscale()", "no gradient on any rank", "ZeRO-2 has them in its shard()"
            )
        if high != -low:
            raise self._refusal(
                "unscale()", f"scales from {-low:g} to {high:g}", "ranks average one scaled loss"
            )
        return bool(any_overflow)

    def step(self, optimizer: torch.optim.Optimizer) -> bool:
        """Makes the optimizer's step, or on every rank forgets the gradients instead.

        Returns:
            Whether the step was made. If not, a learning-rate schedule must not go on either.

        Raises:
            CommError: the gradients are still scaled.
        """
        if self._overflow is None:
            raise self._refusal("step()", "gradients that are still scaled", "unscale() them first")
        if not self._overflow:
            optimizer.step()
            return True
        optimizer.zero_grad()
        for parameter in self._unscaled:
            parameter.grad = None
        return False

    def update(self) -> None:
        """Ends the update: the scale falls after an overflow, and grows after enough without one.

        Raises:
            CommError: `unscale` was not called, or the scale has fallen to nothing.
        """
        if self._overflow is None:
            raise self._refusal("update()", "no verdict on the gradients", "unscale() them first")
        if self._overflow:
            self.factor *= self.backoff
            self.good = 0
            self.skipped += 1
        else:
            self.good += 1
        if self.good == self.interval:
            grown = self.factor * self.growth
            self.factor = grown if grown <= LARGEST else self.factor
            self.good = 0
        self._overflow, self._unscaled = None, []
        if self.factor < SMALLEST:
            raise self._refusal(
                "update()",
                f"overflow at every scale, {self.skipped} steps skipped",
                "no scale helps against NaN: the loss has diverged, or an input is not finite",
            )

    def state_dict(self) -> dict[str, Any]:
        """Everything to continue with, in the words of torch.amp.GradScaler, which loads it too."""
        return {
            "scale": self.factor,
            "growth_factor": self.growth,
            "backoff_factor": self.backoff,
            "growth_interval": self.interval,
            "_growth_tracker": self.good,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads what `state_dict` gave, here or of a torch.amp.GradScaler; an update begins."""
        self.factor = state_dict["scale"]
        self.growth = state_dict["growth_factor"]
        self.backoff = state_dict["backoff_factor"]
        self.interval = state_dict["growth_interval"]
        self.good = state_dict["_growth_tracker"]
        self._overflow, self._unscaled = None, []

    def _check_dtypes(self, gradients: list[torch.Tensor]) -> None:
        if any(gradient.dtype == torch.float16 for gradient in gradients):
            raise self._refusal(
                "unscale()",
                "gradients in fp16",
                "divided by the scale there, they are flushed to zero after all: use "
                "MasterWeights, and unscale what its gradients_up() gives",
            )

    def _refusal(self, asked: str, found: str, why: str) -> CommError:
        return CommError(f"{asked} at scale {self.factor:g}", f"{found}, {self.group}", why)


def _numbers(gradient: torch.Tensor) -> torch.Tensor:
    """What a sparse or a complex gradient consists of: real numbers, in a dense tensor."""
    if gradient.is_sparse:
        gradient = gradient.coalesce().values()
    return torch.view_as_real(gradient) if gradient.is_complex() else gradient
