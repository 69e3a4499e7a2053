"""Finds weights that a forward reads from outside of their unit, where only a piece of them is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from course_lib.parallel.zero.sharded.unit import State, Unit

ACCESSORS = ("__get__", "__set__")  # of attributes: they compute nothing


class RefuseReads(TorchFunctionMode):
    """Inside, a torch function that computes with a parameter that is cut is refused.

    It costs a call in Python for each torch function, so it is for one forward, not for all.

    Args:
        unit_of: the units' parameters.
        refuse: called with the unit and the parameter; raises.
    """

    def __init__(
        self,
        unit_of: Mapping[nn.Parameter, Unit],
        refuse: Callable[[Unit, nn.Parameter], None],
    ) -> None:
        super().__init__()
        self._unit_of, self._refuse = unit_of, refuse

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and func.__name__ not in ACCESSORS:
            for value in (*args, *(kwargs or {}).values()):
                unit = self._unit_of.get(value) if isinstance(value, nn.Parameter) else None
                if unit is not None and unit.state is not State.WHOLE:
                    self._refuse(unit, value)
        return result
