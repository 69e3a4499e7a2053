"""Torch's GradScaler refuses parameters of which it cannot see the whole gradient.

Notebook: 09 Mixed precision and FP8 (DynamicLossScaler).
Source: torch.amp.GradScaler, which looks for infinities in the gradients of an optimizer.
Costs a look at an attribute of each parameter in a scaler's step.
The production version (FSDP2) has DTensors, of which the scaler reduces its verdict.

An overflow in one rank's piece would have this rank skip its step, and no other: weights of two
steps in one model. Torch has no hook there, so the method is replaced once by one that looks for a
mark.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch.amp import GradScaler

from course_lib.comm import CommError

_MARK = "_refuses_scaler"


def refuse_scaler(owner: object, parameters: Sequence[torch.Tensor], found: str) -> None:
    """Has torch's GradScaler refuse parameters, as long as their owner lives.

    Args:
        owner: the wrapper.
        parameters: that it has cut, or whose gradients it averages in the step.
        found: what their gradients are.

    Raises (when a scaler unscales their gradients):
        CommError: with these words.
    """
    _watch()
    mark = (found,)
    for parameter in parameters:
        setattr(parameter, _MARK, mark)
    weakref.finalize(owner, _unmark, parameters, mark)


def _unmark(parameters: Sequence[torch.Tensor], mark: object) -> None:
    for parameter in parameters:
        if getattr(parameter, _MARK, None) is mark:  # and not that of a later wrapper
            delattr(parameter, _MARK)


def _watch() -> None:
    plain = GradScaler._unscale_grads_
    if getattr(plain, _MARK, False):
        return

    @functools.wraps(plain)
    def unscale(self: GradScaler, optimizer: torch.optim.Optimizer, *args: Any) -> Any:
        for parameter in (p for options in optimizer.param_groups for p in options["params"]):
            (found,) = getattr(parameter, _MARK, ("",))
            if found:
                raise CommError(
                    "torch.amp.GradScaler",
                    found,
                    "a rank that finds an overflow would skip its step alone: use "
                    "DynamicLossScaler, whose verdict is that of all ranks",
                )
        return plain(self, optimizer, *args)

    setattr(unscale, _MARK, True)
    GradScaler._unscale_grads_ = unscale  # type: ignore[method-assign, assignment]
