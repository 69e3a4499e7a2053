"""Hooks on gradients that a copy of a module has as well.

Notebook: 07 Sequence and context parallel (norms), 12 Expert parallel.
Source: torch.nn.Parameter.__deepcopy__, which leaves hooks behind.
Costs nothing.
The production version (DTensor) needs no hook: it knows what is a part, and copies that.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

Hook = Callable[[torch.Tensor], torch.Tensor]
COPY, STATE = "__deepcopy__", "__getstate__"  # `copy` and torch's pickling ask the object itself


def hook_with_copies(parameter: nn.Parameter, hook: Hook) -> None:
    """Has a hook change each gradient of a parameter, and of its deep copies.

    Without it a copy of a model would train as well, on other gradients, and without a word.
    """
    parameter.register_hook(hook)
    before = vars(parameter).get(COPY)
    setattr(parameter, COPY, _Copier(parameter, [*(before.hooks if before else ()), hook]))
    setattr(parameter, STATE, dict)  # nothing of this: a pickled parameter has no hooks anyway


class _Copier:
    """Copies a parameter with its hooks."""

    def __init__(self, parameter: nn.Parameter, hooks: list[Hook]) -> None:
        self.parameter = weakref.ref(parameter)  # or it would hold itself
        self.hooks = hooks

    def __call__(self, memo: dict[int, Any]) -> nn.Parameter:
        parameter = self.parameter()
        assert parameter is not None  # it is being copied
        copy: nn.Parameter = nn.Parameter.__deepcopy__(parameter, memo)
        for hook in self.hooks:
            hook_with_copies(copy, hook)
        return copy
