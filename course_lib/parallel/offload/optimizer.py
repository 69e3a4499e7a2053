"""Optimizer state and master weights on the host: gradients go down, new parameters come up.

Notebook: 05 Offload (offloaded_adam, when_offload_pays).
Paper: Ren et al., "ZeRO-Offload: Democratizing Billion-Scale Model Training" (2021), sections 3–4.
Costs a step: S bytes down and S bytes up on the link, S the bytes of the parameters in the device's
dtype; no collective. The device holds no optimizer state and no master weights.
The production version (DeepSpeed) updates with vectorised C++ on all cores, and sends each part of
the parameters up while the next is updated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from course_lib.parallel.guard import weakly, when_accumulated
from course_lib.parallel.inner import OuterOptimizer
from course_lib.parallel.offload.device_pool import Copy, DevicePool
from course_lib.parallel.shared_memory import refuse_shared_memory
from course_lib.trace import Refusal
from course_lib.trace.memory import held_bytes

WIDE = {torch.float16: torch.float32, torch.bfloat16: torch.float32}  # dtype of the master weights


class Slot:
    """One parameter on the device, and what belongs to it on the host.

    Args:
        parameter: on the device.
        pool: the device.

    Attributes:
        master: the host's copy, in at least float32; the optimizer updates this one.
        gradient: what has come down since the last step, in the master's dtype.
    """

    def __init__(self, parameter: nn.Parameter, pool: DevicePool) -> None:
        self.parameter = parameter
        self._pool = pool
        self._wire = pool.host_like(parameter)
        value = pool.copy_down(parameter, self._wire).wait_on_host()
        self.master = nn.Parameter(value.to(WIDE.get(value.dtype, value.dtype), copy=True))
        self._seen = self._state()
        self.gradient: torch.Tensor | None = None
        self._arriving: Copy | None = None

    def gradient_down(self) -> None:
        """Starts the copy of the gradient, if there is one."""
        gradient = self.parameter.grad
        if gradient is not None:
            dense = gradient if gradient.layout is torch.strided else gradient.to_dense()
            self._arriving = self._pool.copy_down(dense, self._wire)

    def gradient_here(self) -> None:
        """Waits for that copy, and adds it to the gradient on the host."""
        if self._arriving is None:
            return
        value = self._arriving.wait_on_host().to(self.master.dtype, copy=True)
        self._arriving = None
        self.gradient = value if self.gradient is None else self.gradient + value

    def follow(self) -> None:
        """Where somebody else has written to the parameter, as a loaded checkpoint does."""
        if self._state() != self._seen:
            value = self._pool.copy_down(self.parameter, self._wire).wait_on_host()
            same = value == self.master.to(value.dtype)
            self.master.copy_(torch.where(same, self.master, value.to(self.master.dtype)))

    def parameter_up(self) -> Copy:
        """Starts the copy of the new value, cast on the host so that half the bytes travel."""
        self._wire.copy_(self.master.detach())
        return self._pool.copy_up(self._wire, self.parameter)

    def parameter_there(self, copy: Copy) -> None:
        """Waits for that copy."""
        copy.wait_on_host()
        self._seen = self._state()

    def _state(self) -> tuple[int, int]:
        """Is another one after any write, and after a replacement of the parameter's data."""
        return self.parameter._version, self.parameter.data_ptr()


class OffloadedOptimizer(OuterOptimizer):
    """Wraps an optimizer class: the same updates, made on the host.

    If somebody else writes to a parameter, as a loaded checkpoint does, its master takes the new
    value before the next step; for this its S bytes go down once more.

    Over a shard, with ZeRO: `Zero1(params, partial(OffloadedOptimizer, optimizer=torch.optim.AdamW,
    pool=pool), group, lr=...)`. Each rank's host then updates 1/N of the parameters.

    Args:
        params: parameters or parameter groups, as for any optimizer.
        optimizer: its class; it sees whole tensors, all in one step.
        pool: the device that the parameters are on; their bytes are counted there.
        during_backward: moves each gradient down as soon as it is complete and forgets it on the
            device, which then never holds all of them. `p.grad` is None afterwards, so nothing that
            reads it (clipping, a loss scaler) may come between backward and step.
        options: for the optimizer.

    Raises:
        CommError: two parameters share memory, of which each would have a master of its own.
        Refusal: (in backward) an earlier optimizer of these parameters has moved the gradient down.
    """

    def __init__(
        self,
        params: Iterable[Any],
        optimizer: Callable[..., Any],
        pool: DevicePool,
        during_backward: bool = False,
        **options: Any,
    ) -> None:
        self.pool = pool
        self._during_backward = during_backward
        self._slots: list[Slot] = []
        self._slot_of: dict[nn.Parameter, Slot] = {}  # of those that are watched in backward
        super().__init__(params, optimizer, options)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds parameters, as for any optimizer; makes their masters on the host."""
        super().add_param_group(param_group)
        added = self.param_groups[-1]
        trained = [p for p in added["params"] if p.requires_grad]
        known = [slot.parameter for slot in self._slots]
        named = {
            f"parameter {n} of shape {tuple(p.shape)}": p for n, p in enumerate(known + trained)
        }
        refuse_shared_memory(f"{type(self).__name__} of {len(named)} parameters", named)
        self.pool.take(sum(p.nbytes for p in trained), "parameters", "parameters")
        slots = [Slot(p, self.pool) for p in trained]
        self._slots += slots
        self._add_inner_group([slot.master for slot in slots])
        for slot in slots if self._during_backward else ():
            self._slot_of[slot.parameter] = slot
            when_accumulated(slot.parameter, weakly(self._on_gradient))

    def _on_gradient(self, parameter: nn.Parameter) -> None:
        if parameter.grad is None:
            raise Refusal(
                f"a gradient of shape {tuple(parameter.shape)} for {type(self).__name__}",
                "another hook has moved it away",
                "an earlier optimizer of these parameters is still there: make the model again too",
            )
        slot = self._slot_of[parameter]
        slot.gradient_here()  # of an earlier backward, under accumulation
        slot.gradient_down()
        parameter.grad = None  # the copy holds it until it is down

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Gradients down, the update on the host, parameters up."""
        loss = self._begin_step(closure)
        for slot in self._slots:
            slot.gradient_here()  # one that came during backward
            slot.gradient_down()  # or one that is still on the device
        for slot in self._slots:
            slot.gradient_here()
        self._update([slot for slot in self._slots if slot.gradient is not None])
        self._take_inner_options()
        return loss

    def _update(self, slots: list[Slot]) -> None:
        """Updates the parameters whose gradients are here."""
        for slot in slots:
            slot.follow()
            slot.master.grad, slot.gradient = slot.gradient, None
        self.inner.step()
        self.inner.zero_grad()
        for slot, copy in [(slot, slot.parameter_up()) for slot in slots]:
            slot.parameter_there(copy)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets the gradients on the device and those that have come down."""
        super().zero_grad(set_to_none)
        for slot in self._slots:
            slot.gradient_here()
            slot.gradient = None

    def state_dict(self) -> dict[str, Any]:
        """The host's optimizer, and the master weights."""
        self._give_inner_options()
        masters = [slot.master.detach().clone() for slot in self._slots]
        return {"inner": self.inner.state_dict(), "masters": masters}

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads what `state_dict` gave, and sends the parameters up."""
        self.inner.load_state_dict(state_dict["inner"])
        self._take_inner_options()
        for slot, value in zip(self._slots, state_dict["masters"], strict=True):
            slot.master.copy_(value)
            slot.parameter_there(slot.parameter_up())

    def host_bytes(self) -> int:
        """Bytes of master weights and optimizer state on the host, scalars left out."""
        return held_bytes([*self._inner_state(), *(slot.master for slot in self._slots)])


class OffloadedAdam(OffloadedOptimizer):
    """AdamW on the host.

    Args:
        params: parameters or parameter groups.
        pool: the device that they are on.
        options: `during_backward`, and those of `torch.optim.AdamW`.
    """

    def __init__(self, params: Iterable[Any], pool: DevicePool, **options: Any) -> None:
        super().__init__(params, torch.optim.AdamW, pool, **options)
