"""What a simulated rank holds, by class, at its peak; and the end of one that holds too much.

Notebook: 13 The mesh, 04 ZeRO and FSDP.
Source: torch.distributed._tools.mem_tracker, which watches storages in the same way.
Costs two look-ups for each tensor that is made, and a walk through the parameters whenever the peak
has grown by a hundredth.
The production version (torchtitan's estimation) puts rounding and caching of the allocator on top.

Every storage counts from when it is made until it dies. Which of them are parameters, gradients
or optimizer state, modules and optimizers know; communication buffers are what the ledger was
told. All others are activations: what is kept for the backward, and what is there in passing.

Before its first matrix product a program builds its model, whole, on the host; that is no peak.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.optim.optimizer import register_optimizer_step_pre_hook

from course_lib.trace import Ledger, Refusal
from course_lib.trace.ledger import MEMORY_CLASSES

STEP = 1.01  # a peak is looked through again when it has grown by so much


class OutOfMemory(Refusal):
    """A rank holds more than its GPU has.

    Attributes:
        rank: which.
    """

    def __init__(self, asked: str, found: str, why: str, rank: int) -> None:
        super().__init__(asked, found, why)
        self.args = (asked, found, why, rank)  # of which pickle makes it again
        self.rank = rank


class Memory:
    """The storages of one rank.

    Args:
        ledger: knows the communication buffers.
        limit: bytes of the GPU.
        where: the rank and its node, in words.

    Attributes:
        now: bytes alive.
        peak: the most there ever were.
        at_peak: the same by class.
    """

    def __init__(self, ledger: Ledger, limit: float, where: str) -> None:
        self.ledger, self.limit, self.where = ledger, limit, where
        self.now = self.peak = 0
        self.at_peak: dict[str, int] = dict.fromkeys(MEMORY_CLASSES, 0)
        self._looked = 0.0
        self._computes = False
        self._sizes: dict[int, int] = {}
        self._alive: dict[int, weakref.ref[torch.UntypedStorage]] = {}
        # By identity: to a set, a tensor that is there twice is a question of its values.
        self.parameters: weakref.WeakValueDictionary[int, nn.Parameter] = (
            weakref.WeakValueDictionary()
        )
        self.optimizers: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()

    def begin(self) -> None:
        """The model is built: from here on there are peaks, and a limit."""
        if not self._computes:
            gc.collect()  # modules are in circles: what was cut away of the whole goes now
            self._computes, self.peak = True, self.now
            self._look(None)

    def made(self, tensor: torch.Tensor) -> None:
        """A tensor has come; its storage counts once."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._sizes:
            return
        self._alive[key] = weakref.ref(storage, lambda _: self._died(key))
        self._sizes[key] = 0
        self.resized(storage, tensor)

    def resized(self, storage: torch.UntypedStorage, tensor: torch.Tensor | None = None) -> None:
        """A storage has now another size."""
        before = self._sizes.get(storage._cdata)
        if before is None:
            return
        self._sizes[storage._cdata] = storage.nbytes()
        self.now += storage.nbytes() - before
        if self.now > self.peak and self._computes:
            self.peak = self.now
            if self.peak > STEP * self._looked or self.peak > self.limit:
                self._look(tensor)

    def _died(self, key: int) -> None:
        self._alive.pop(key, None)
        self.now -= self._sizes.pop(key, 0)

    def _look(self, tensor: torch.Tensor | None) -> None:
        self.at_peak, self._looked = self.by_class(), self.peak
        if self.peak > self.limit:
            shape = "" if tensor is None else f", of shape {tuple(tensor.shape)} in {tensor.dtype},"
            count = 0 if tensor is None else tensor.untyped_storage().nbytes()
            raise OutOfMemory(
                f"{count / 1e9:.2f} GB more for a tensor{shape} on {self.where}",
                f"{self.peak / 1e9:.1f} GB of {self.limit / 1e9:.1f}: {in_words(self.at_peak)}",
                "it does not fit: cut the largest class over more ranks, or recompute activations",
                self.ledger.rank,
            )

    def by_class(self) -> dict[str, int]:
        """Bytes alive now, by class."""
        parameters = list(self.parameters.values())
        groups = [g for o in list(self.optimizers) for g in o.param_groups]
        held = [*parameters, *(p for group in groups for p in group["params"])]
        states = [
            tensor
            for optimizer in list(self.optimizers)
            for state in optimizer.state.values()
            for tensor in state.values()
            if isinstance(tensor, torch.Tensor)
        ]
        seen: set[int] = set()
        found = {
            "parameters": self._bytes(held, seen),
            "gradients": self._bytes([p.grad for p in held if p.grad is not None], seen),
            "optimizer state": self._bytes(states, seen),
        }
        rest = self.now - sum(found.values())
        buffers = min(rest, self.ledger.held.get("communication buffers", 0))
        return {**found, "activations": rest - buffers, "communication buffers": buffers}

    def _bytes(self, tensors: Any, seen: set[int]) -> int:
        keys = {tensor.untyped_storage()._cdata for tensor in tensors} - seen
        seen |= keys
        return sum(self._sizes.get(key, 0) for key in keys)


def in_words(held: dict[str, int]) -> str:
    """`activations 51.0, parameters 17.6`: the largest first, in GB; a hundredth is left out."""
    order = sorted(held.items(), key=lambda item: -item[1])
    least = sum(held.values()) / 100
    return ", ".join(f"{name} {count / 1e9:.3g}" for name, count in order if count > least)


@contextmanager
def watched(current: Any) -> Iterator[None]:
    """Tells each rank's `Memory` of its parameters, optimizers and of storages that change.

    Args:
        current: gives the `Memory` of the rank that has the turn, or None.
    """
    resize = torch.UntypedStorage.resize_

    def resized(storage: torch.UntypedStorage, size: int) -> Any:
        result = resize(storage, size)
        memory = current()
        if memory is not None:
            memory.resized(storage)
        return result

    def registered(_module: nn.Module, _name: str, parameter: nn.Parameter | None) -> None:
        memory = current()
        if memory is not None and parameter is not None:
            memory.parameters[id(parameter)] = parameter

    def steps(optimizer: torch.optim.Optimizer, _args: Any, _options: Any) -> None:
        memory = current()
        if memory is not None:
            memory.optimizers.add(optimizer)

    hooks = (
        register_module_parameter_registration_hook(registered),
        register_optimizer_step_pre_hook(steps),
    )
    torch.UntypedStorage.resize_ = resized  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        torch.UntypedStorage.resize_ = resize  # type: ignore[method-assign]
        for hook in hooks:
            hook.remove()
