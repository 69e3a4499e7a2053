"""A device that is none: tensors that refuse to meet the host's, and a link that counts bytes."""

from __future__ import annotations

import weakref
from typing import Any, cast

import torch
from torch.utils._pytree import tree_leaves, tree_map


class DeviceTensor(torch.Tensor):
    """A tensor on the device; see `Link`, which makes a class of its own."""

    link: Link

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Runs an operation on the device, and counts what it makes there."""
        kwargs = kwargs or {}
        cls._refuse_host(func, [t for t in tree_leaves((args, kwargs)) if torch.is_tensor(t)])
        with torch._C._DisableTorchDispatch():
            result = func(*args, **kwargs)
        return tree_map(cls.link.wrap, result)

    @classmethod
    def _refuse_host(cls, func: Any, tensors: list[torch.Tensor]) -> None:
        """Numbers may come from the host, as on a GPU; tensors may not."""
        host = [t for t in tensors if not isinstance(t, DeviceTensor) and t.dim()]
        if host:
            raise RuntimeError(
                f"{func.__name__.partition('.')[0]} was given a tensor on the device and one on the"
                f" host, of shape {tuple(host[0].shape)}: copy one of them over the link first"
            )

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"a device tensor of shape {tuple(self.shape)}, {self.dtype}"


class Link:
    """Between the host and a device whose bytes are counted.

    Attributes:
        bytes_up: copied to the device so far.
        bytes_down: copied to the host so far.
        held: bytes on the device now.
        peak: the most there were since the last `put`.
    """

    def __init__(self) -> None:
        self.bytes_up = self.bytes_down = self.held = self.peak = 0
        self._kind = type("OnDevice", (DeviceTensor,), {"link": self})
        self._sizes: dict[int, int] = {}

    def down(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy of a device tensor on the host, without its history."""
        self._check(isinstance(tensor, DeviceTensor), "down", tensor)
        self.bytes_down += tensor.nbytes
        with torch._C._DisableTorchDispatch():
            return self._plain(tensor.detach().clone())

    def up(self, host: torch.Tensor, into: torch.Tensor | None = None) -> torch.Tensor:
        """Copies a host tensor to the device: into one of the same form, or a new one."""
        self._check(not isinstance(host, DeviceTensor), "up", host)
        if into is not None:
            self._check(isinstance(into, DeviceTensor), "up into", into)
            self._check_form(host, into)
        self.bytes_up += host.nbytes
        if into is None:
            return self.put(host)
        with torch._C._DisableTorchDispatch(), torch.no_grad():
            into.copy_(host.detach())
        return into

    def put(self, host: torch.Tensor) -> torch.Tensor:
        """A copy on the device that no byte count sees: what was there from the beginning."""
        return cast(torch.Tensor, self.wrap(host.detach().clone()))

    def wrap(self, value: Any) -> Any:
        """What an operation on the device has made, as a device tensor."""
        if not torch.is_tensor(value) or isinstance(value, DeviceTensor):
            return value
        self._count(value.untyped_storage())
        return torch.Tensor._make_subclass(self._kind, value)

    def _plain(self, tensor: torch.Tensor) -> torch.Tensor:
        return torch.Tensor._make_subclass(torch.Tensor, tensor)

    # --- memory ----------------------------------------------------------------------------------
    def _count(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        if key not in self._sizes:
            self._sizes[key] = storage.nbytes()
            self.held += storage.nbytes()
            self.peak = max(self.peak, self.held)
            weakref.finalize(storage, self._forget, key)

    def _forget(self, key: int) -> None:
        self.held -= self._sizes.pop(key, 0)

    # --- refusals --------------------------------------------------------------------------------
    def _check(self, holds: bool, what: str, given: Any) -> None:
        if not holds:
            found = "a host tensor" if torch.is_tensor(given) else type(given).__name__
            if isinstance(given, DeviceTensor):
                found = "a device tensor"
            raise TypeError(f"link.{what} was given {found}")

    def _check_form(self, host: torch.Tensor, into: torch.Tensor) -> None:
        if host.dtype != into.dtype or host.shape != into.shape:
            raise TypeError(
                f"link.up of {tuple(host.shape)} {host.dtype} into {tuple(into.shape)} {into.dtype}"
                ": a link moves bytes; cast on the host, before the copy"
            )
