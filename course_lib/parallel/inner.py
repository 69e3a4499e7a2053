"""An optimizer whose updates are made by an inner one, on other tensors: a shard, or host copies.

Notebook: 04 ZeRO (Zero1, Zero2), 05 Offload (OffloadedAdam).
Source: torch.optim.Optimizer, whose parameter groups are the options that a user sets.
Costs nothing by itself.
The production version (ZeroRedundancyOptimizer) copies options between the two in the same way.

Learning-rate schedules, checkpoints and `add_param_group` use the outer optimizer, so its groups
count, and their options are copied to the inner one before each step. Some optimizers change their
options in a step, as schedule-free ones that count there, so they are copied back after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch


class OuterOptimizer(torch.optim.Optimizer):
    """The outer one of the two.

    Args:
        params: parameters or parameter groups, as for any optimizer.
        make: class of the inner optimizer.
        options: for it.

    Attributes:
        inner: the optimizer that makes the updates; None until a parameter group is there.
    """

    def __init__(
        self, params: Iterable[Any], make: Callable[..., Any], options: dict[str, Any]
    ) -> None:
        self.inner: Any = None
        self._make, self._options = make, options
        super().__init__(params, options)

    def _add_inner_group(self, tensors: Sequence[torch.Tensor]) -> None:
        """Gives the inner optimizer what stands for the parameters of the group added last."""
        added = self.param_groups[-1]
        own = {key: value for key, value in added.items() if key != "params"}
        group = {"params": list(tensors), **own}
        if self.inner is None:
            self.inner = self._make([group], **self._options)
            self.defaults = dict(self.inner.defaults)  # a schedule asks them what it may change
        else:
            self.inner.add_param_group(group)
        for key, value in self.inner.param_groups[-1].items():
            added.setdefault(key, value)  # defaults of its class, which a schedule reads here

    def _begin_step(self, closure: Callable[[], Any] | None) -> Any:
        """Calls the closure, whose loss it returns, and tells the inner optimizer the options."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._give_inner_options()
        return loss

    def _give_inner_options(self) -> None:
        """Before a step, or the saving of a state, what a schedule has set counts."""
        for outer, inner in zip(self.param_groups, self.inner.param_groups, strict=True):
            inner.update({key: value for key, value in outer.items() if key != "params"})

    def _take_inner_options(self) -> None:
        """After a step, or the loading of a state, the inner optimizer's options count."""
        for outer, inner in zip(self.param_groups, self.inner.param_groups, strict=True):
            outer.update({key: value for key, value in inner.items() if key != "params"})

    def _inner_state(self) -> list[torch.Tensor]:
        """The tensors that the inner optimizer keeps, scalars left out."""
        values = [value for state in self.inner.state.values() for value in state.values()]
        return [value for value in values if torch.is_tensor(value) and value.dim()]
