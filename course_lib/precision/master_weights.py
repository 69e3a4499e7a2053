"""Weights of 16 bits to compute with, and a float32 copy that small updates add up in.

Notebook: 09 Mixed precision and FP8 (MasterWeightAdam).
Paper: Micikevicius et al., "Mixed Precision Training" (2018), section 3.1; Rajbhandari et al.,
"ZeRO" (2020), section 3.1, for the 16 bytes.
Costs nothing on the wire. Bytes a parameter, with Adam: 2 weights, 2 gradients, 12 of optimizer
state (4 master, 4+4 moments); in a step 4 for the gradients in float32 instead of 2, and what the
update itself needs (8 in torch's AdamW, for all parameters at once).
The production version (Apex, Megatron) casts and updates in one fused kernel, tensor by tensor.

A bf16 number has 8 significant bits: next to 1.0 comes 1.0078. An update of 0.001 is rounded away,
every time, however many there are. In float32 it is kept, and after four of them bf16 sees it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from course_lib.trace import Refusal

NARROW = (torch.float16, torch.bfloat16)


class MasterWeights(torch.optim.Optimizer):
    """Wraps an optimizer class: it updates float32 masters, which the weights are rounded from.

    A parameter that is wide already is its own master. If somebody else writes to a weight, as a
    broadcast or a loaded checkpoint does, its master takes the new value before the next step.

    Over a shard, with ZeRO: `Zero1(params, partial(MasterWeights, optimizer=AdamW), group, lr=...)`
    keeps 12/N bytes of state a parameter on each rank.

    Args:
        params: parameters or parameter groups, as for any optimizer.
        optimizer: its class, such as torch.optim.AdamW.
        options: for it.

    Attributes:
        inner: the optimizer that updates the masters.
        state: for each parameter its `master`, if it has one, and what `inner` keeps for it.

    Raises:
        Refusal: (in a step) a narrow parameter was frozen when it was given, and is not any more.
    """

    def __init__(
        self, params: Iterable[Any], optimizer: Callable[..., Any], **options: Any
    ) -> None:
        self.inner: Any = None
        self._make, self._options = optimizer, options
        self._masters: dict[nn.Parameter, nn.Parameter] = {}
        super().__init__(params, options)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds parameters, as for any optimizer; makes their masters."""
        super().add_param_group(param_group)
        added = self.param_groups[-1]
        for parameter in added["params"]:
            if parameter.requires_grad and parameter.dtype in NARROW:
                self._masters[parameter] = nn.Parameter(parameter.detach().float())
        inner_group = {**added, "params": [self._masters.get(p, p) for p in added["params"]]}
        if self.inner is None:
            self.inner = self._make([inner_group], **self._options)
            self.defaults = dict(self.inner.defaults)  # a schedule asks them what it may change
        else:
            self.inner.add_param_group(inner_group)
        for key, value in self.inner.param_groups[-1].items():
            added.setdefault(key, value)  # defaults of its class, which a schedule reads here
        self._show_state()

    @torch.no_grad()
    def gradients_up(self) -> list[nn.Parameter]:
        """Moves the gradients to the masters, in float32, and adds them to what is there.

        `step` calls this. Call it before when something must see the gradients first (a loss
        scaler, clipping), or after each backward, so that several add up in float32.

        Returns:
            What `step` will update: the masters, and the parameters that are their own.
        """
        self._refuse_thawed()
        for parameter, master in self._masters.items():
            if parameter.grad is not None:
                gradient = parameter.grad.float()
                master.grad = gradient if master.grad is None else master.grad.add_(gradient)
                parameter.grad = None  # two bytes back for the four just taken
        return [p for options in self.inner.param_groups for p in options["params"]]

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Updates the masters and rounds the weights from them. Uses narrow gradients up."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for outer, inner in zip(self.param_groups, self.inner.param_groups, strict=True):
            inner.update({key: value for key, value in outer.items() if key != "params"})
        self.gradients_up()
        updated = [(p, master) for p, master in self._masters.items() if master.grad is not None]
        for parameter, master in updated:
            _follow(parameter, master)
        self.inner.step()
        for parameter, master in updated:
            parameter.copy_(master)
            master.grad = None
        self._take_inner_options()
        self._show_state()
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets the gradients of the parameters and of their masters."""
        super().zero_grad(set_to_none)
        for master in self._masters.values():
            master.grad = None

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads what `state_dict` gave, and rounds the weights from the masters in it.

        The form is torch's own, with a `master` for each parameter. Without one, as in the state of
        a plain optimizer, the master begins at the weight.
        """
        saved = state_dict["state"]
        without = {n: {k: v for k, v in s.items() if k != "master"} for n, s in saved.items()}
        self.inner.load_state_dict({**state_dict, "state": {n: s for n, s in without.items() if s}})
        parameters = [p for options in self.param_groups for p in options["params"]]
        for number, parameter in enumerate(parameters):
            master = self._masters.get(parameter)
            if master is not None and "master" in saved.get(number, {}):
                master.copy_(saved[number]["master"])
                parameter.copy_(master)
        self._take_inner_options()
        self._show_state()

    def _refuse_thawed(self) -> None:
        """A narrow parameter that was frozen when it was given has no master."""
        given = [p for options in self.param_groups for p in options["params"]]
        for parameter in given:
            narrow = parameter.dtype in NARROW and parameter not in self._masters
            if narrow and parameter.grad is not None:
                raise Refusal(
                    f"a step of MasterWeights for shape {tuple(parameter.shape)}",
                    "it was frozen when the optimizer was made, and has no master",
                    "small updates would be rounded away: make the optimizer again",
                )

    def _take_inner_options(self) -> None:
        """An optimizer may change its options in a step, as a schedule-free one that counts."""
        for outer, inner in zip(self.param_groups, self.inner.param_groups, strict=True):
            outer.update({key: value for key, value in inner.items() if key != "params"})

    def _show_state(self) -> None:
        """The same tensors as the inner optimizer has, under the parameters' own names."""
        for options in self.param_groups:
            for parameter in options["params"]:
                master = self._masters.get(parameter)
                mine = {} if master is None else {"master": master.detach()}
                kept = self.inner.state.get(parameter if master is None else master, {})
                if mine or kept:
                    self.state[parameter] = {**mine, **kept}


def _follow(parameter: nn.Parameter, master: nn.Parameter) -> None:
    """Where the weight is not its master, rounded, somebody else has written to it."""
    rounded = master.to(parameter.dtype)
    if not torch.equal(rounded, parameter):
        master.copy_(torch.where(rounded == parameter, master, parameter.float()))
