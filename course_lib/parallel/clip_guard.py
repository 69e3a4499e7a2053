"""Torch's gradient clipping refuses parameters of which it cannot see the whole gradient.

Notebook: 04 ZeRO (sharded_clip_norm).
Source: torch.nn.utils.clip_grad, whose functions take parameters and look at their `grad`.
Costs nothing in a step: one look at an attribute of each parameter when torch clips.
The production version (FSDP2) makes gradients DTensors, whose norm is a collective.

Under ZeRO a parameter's `grad` is this rank's own, or None, until the step; under FSDP it is a
piece of the average. Torch would clip by another norm on every rank. It has no hook before its
clipping, so the functions that its decorator calls are replaced once by ones that look for a mark.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch.nn.utils import clip_grad

from course_lib.comm import CommError

BY_NORM = ("clip_grad_norm_",)  # wrong where `grad` is a piece: each has a norm of its own
# Right on pieces with the norm of the whole, which whoever asks a model for its parameters lacks.
BY_ANY_NORM = (*BY_NORM, "_clip_grads_with_norm_")
ANY = (*BY_ANY_NORM, "clip_grad_value_")  # wrong before the average
_MARK = "_refuses_clipping"


def refuse_clipping(
    owner: object, parameters: Sequence[torch.Tensor], calls: Sequence[str], found: str, why: str
) -> None:
    """Has some of torch's clipping functions refuse parameters, as long as their owner lives.

    Args:
        owner: the wrapper.
        parameters: that it has changed.
        calls: names of the functions, `BY_NORM` or `ANY`.
        found: what the parameters' gradients are.
        why: what to call instead.

    Raises (when torch is asked to clip):
        CommError: with these words.
    """
    for name in ANY:
        _watch(getattr(clip_grad, name), name)
    mark = (tuple(calls), found, why)
    for parameter in parameters:
        setattr(parameter, _MARK, mark)
    weakref.finalize(owner, _unmark, parameters, mark)


def _unmark(parameters: Sequence[torch.Tensor], mark: object) -> None:
    for parameter in parameters:
        if getattr(parameter, _MARK, None) is mark:  # and not that of a later wrapper
            delattr(parameter, _MARK)


def _watch(function: Callable[..., Any], name: str) -> None:
    """Puts a look at the parameters before what torch's decorator `_no_grad` has wrapped.

    The cell is changed, not the module's name, since `from torch.nn.utils import ...` copies names.
    """
    (cell,) = function.__closure__ or ()
    clip = cell.cell_contents
    if isinstance(clip, _Watched):
        return
    cell.cell_contents = _Watched(clip, name)


class _Watched:
    """One of torch's clipping functions, and the look before it."""

    def __init__(self, clip: Callable[..., Any], name: str) -> None:
        self._clip, self._name = clip, name

    def __call__(
        self, parameters: torch.Tensor | Iterable[torch.Tensor], *args: Any, **kwargs: Any
    ) -> Any:
        given = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
        for parameter in given:
            calls, found, why = getattr(parameter, _MARK, ((), "", ""))
            if self._name in calls:
                raise CommError(f"torch.nn.utils.{self._name.lstrip('_')}", found, why)
        return self._clip(given or parameters, *args, **kwargs)
