"""Finds weights that a forward reads from outside of their unit, and writes that would be lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from course_lib.parallel.zero.sharded.unit import State, Unit, lost_write

ACCESSORS = ("__get__", "__set__")  # of attributes: they compute nothing


class RefuseReads(TorchFunctionMode):
    """Inside, a torch function that computes with a parameter that is cut is refused.

    So is one that writes to a whole parameter by its `data`, which autograd does not count. It
    costs a call in Python for each torch function, so it is for one forward, not for all.

    Args:
        unit_of: the units' parameters.
        refuse: called with the unit and the parameter; raises.
        rank: for errors.
    """

    def __init__(
        self,
        unit_of: Mapping[nn.Parameter, Unit],
        refuse: Callable[[Unit, nn.Parameter], None],
        rank: int,
    ) -> None:
        super().__init__()
        self._unit_of, self._refuse, self._rank = unit_of, refuse, rank
        self._units = list(dict.fromkeys(unit_of.values()))

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        try:
            result = func(*args, **given)
        except Exception:
            self._refuse_read((args, given))  # a piece has another shape, which is why it failed
            raise
        if func.__name__ not in ACCESSORS:
            if isinstance(result, torch.Tensor):
                self._refuse_read((args, given))
            self._refuse_write(func.__name__, args, given)
        return result

    def _refuse_read(self, arguments: Any) -> None:
        for value in tree_leaves(arguments):
            unit = self._unit_of.get(value) if isinstance(value, nn.Parameter) else None
            if unit is not None and unit.state is not State.WHOLE:
                self._refuse(unit, value)

    def _refuse_write(self, name: str, args: Any, kwargs: Any) -> None:
        in_place = name == "__setitem__" or (name.endswith("_") and not name.endswith("__"))
        written = kwargs.get("out", args[0] if in_place and args else None)
        if isinstance(written, torch.Tensor):
            for unit in self._units:
                if unit.state is State.WHOLE and unit.owns(written):
                    raise lost_write(unit.name, self._rank)
