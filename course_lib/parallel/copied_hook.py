"""Hooks on gradients that a copy of a module has as well.

Notebook: 07 Sequence and context parallel (norms), 12 Expert parallel.
Source: torch.nn.Parameter.__deepcopy__, which leaves hooks behind.
Costs nothing.
The production version (DTensor) needs no hook: it knows what is a part, and copies that.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

_HOOKS = "_copied_hooks"
Hook = Callable[[torch.Tensor], torch.Tensor]


def hook_with_copies(parameter: nn.Parameter, hook: Hook) -> None:
    """Has a hook change each gradient of a parameter, and of its deep copies.

    Without it a copy of a model would train as well, on other gradients, and without a word.
    """
    parameter.register_hook(hook)
    setattr(parameter, _HOOKS, (*getattr(parameter, _HOOKS, ()), hook))
    # `copy.deepcopy` asks the object itself; weakly, or a parameter would hold itself.
    setattr(parameter, "__deepcopy__", partial(_copied, weakref.ref(parameter)))  # noqa: B010


def _copied(original: weakref.ref[nn.Parameter], memo: dict[int, Any]) -> nn.Parameter:
    parameter = original()
    assert parameter is not None  # it is being copied
    copy: nn.Parameter = nn.Parameter.__deepcopy__(parameter, memo)
    for hook in getattr(parameter, _HOOKS):
        hook_with_copies(copy, hook)
    return copy
