"""What a stretch of code really holds: every storage that is made, until it dies.

Notebook: 03 Gradient accumulation, 04 ZeRO and FSDP, 10 Activation checkpointing.
Source: torch.distributed._tools.mem_tracker, whose way of watching storages this follows.
Costs about 10 microseconds an operation; nothing is sent.
The production version (torch.cuda.memory) asks the allocator, which also sees what kernels borrow.

The one file of this room that imports torch: the ledger's classes are what a wrapper says of
itself, and this is the measurement that they are held against.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Iterable
from typing import Any, Self

import torch
from torch.utils._python_dispatch import (
    TorchDispatchMode,
    is_traceable_wrapper_subclass,
)
from torch.utils._pytree import tree_leaves

from course_lib.trace.ledger import Ledger


def held_bytes(tensors: Iterable[torch.Tensor]) -> int:
    """Bytes behind these tensors; storages that several of them share are counted once."""
    plain = [inner for tensor in tensors for inner in _plain(tensor)]
    return sum({s._cdata: s.nbytes() for s in (t.untyped_storage() for t in plain)}.values())


def held_by_class(parameters: Iterable[torch.Tensor], optimizers: Iterable[Any]) -> dict[str, int]:
    """Bytes of a rank's parameters, gradients and optimizer state, each storage once.

    Args:
        parameters: of the model, as its strategy left it.
        optimizers: that step it. One that has another as `inner` (`Zero1`) is looked into: the
            pieces that it updates, their gradients and their state are the inner one's. Scalars of
            the state are left out.
    """
    held = list(parameters)
    inner = [getattr(optimizer, "inner", optimizer) for optimizer in optimizers]
    pieces = [p for each in inner for options in each.param_groups for p in options["params"]]
    states = [
        tensor for each in inner for entry in each.state.values() for tensor in entry.values()
    ]
    return {
        "parameters": held_bytes(held),
        "gradients": held_bytes(p.grad for p in (*held, *pieces) if p.grad is not None),
        "optimizer state": held_bytes(t for t in states if torch.is_tensor(t) and t.dim()),
    }


def _plain(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The tensors with memory of their own inside a wrapper such as DTensor; else the tensor."""
    if not is_traceable_wrapper_subclass(tensor):
        return [tensor]
    names, _ = tensor.__tensor_flatten__()
    parts = [getattr(tensor, name) for name in names]
    return [inner for part in parts if torch.is_tensor(part) for inner in _plain(part)]


def _storages(tree: Any) -> list[torch.UntypedStorage]:
    tensors = [leaf for leaf in tree_leaves(tree) if torch.is_tensor(leaf)]
    return [inner.untyped_storage() for tensor in tensors for inner in _plain(tensor)]


class LiveMemory(TorchDispatchMode):
    """Counts the bytes of all tensors that are made while it is on: `with LiveMemory() as memory`.

    Args:
        ledger: books each change as activations, for a picture over time. Make what is none of
            them, such as gradients, before.

    Attributes:
        now: bytes alive that were made since it was switched on.
        peak: the most there ever were.
    """

    def __init__(self, ledger: Ledger | None = None) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._book = ledger
        self._sizes: dict[int, int] = {}
        self._resize = torch.UntypedStorage.resize_

    def __enter__(self) -> Self:
        resize, count = self._resize, self._count

        def watched(storage: torch.UntypedStorage, size: int) -> None:
            resize(storage, size)
            count(storage)

        torch.UntypedStorage.resize_ = watched  # type: ignore[assignment]
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        torch.UntypedStorage.resize_ = self._resize  # type: ignore[method-assign]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Runs the operation and counts what came out of it."""
        given = {storage._cdata for storage in _storages((args, kwargs))}
        result = func(*args, **(kwargs or {}))
        for storage in _storages(result):
            if storage._cdata not in given:
                self._count(storage)
        return result

    def settle(self, most: int, patience: float = 2.0) -> int:
        """Waits until no more than `most` bytes are alive, and returns how many are.

        A backend's thread may hold a buffer a little longer than the call that it was for.

        Args:
            most: bytes.
            patience: seconds after which it returns with more.
        """
        end = time.monotonic() + patience
        while self.now > most and time.monotonic() < end:
            time.sleep(0.005)
        return self.now

    def _count(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key not in self._sizes:
            weakref.finalize(storage, self._forget, key)
        before, self._sizes[key] = self._sizes.get(key, 0), size
        self._change(size - before)

    def _forget(self, key: int) -> None:
        self._change(-self._sizes.pop(key, 0))

    def _change(self, by: int) -> None:
        self.now += by
        self.peak = max(self.peak, self.now)
        if self._book is not None and by:
            self._book.add_memory("activations", by)
