"""Activations wait for the backward pass on the host: down when saved, up when needed.

Notebook: 05 Offload (activation_offload).
Paper: Rajbhandari et al., "ZeRO-Infinity" (2021), section 5.1.2, "CPU offload of activations";
the hooks are PyTorch's `torch.autograd.graph.saved_tensors_hooks`.
Costs a step: the bytes of the saved activations down, and as many up (somewhat more if two
operations that need the same one lie far apart); no collective.
The production version (`torch.autograd.graph.save_on_cpu`) copies each tensor as often as it is
saved, and waits for each copy; torchtune's `OffloadActivations` uses streams, as is done here.
"""

from __future__ import annotations

import weakref
from collections import deque
from typing import Any

import torch
from torch import nn

from course_lib.parallel.offload.device_pool import Copy, DevicePool
from course_lib.trace import Refusal


class _Saved:
    """One activation: on its way down, on the host, or up again."""

    def __init__(self, tensor: torch.Tensor, pool: DevicePool) -> None:
        self._pool, self._device, self.nbytes = pool, tensor.device, tensor.nbytes
        self.host = pool.host_like(tensor)
        # Without its graph, which leads here; both count the same changes in place.
        self._source: torch.Tensor | None = tensor.detach()
        self._version, self._changed = tensor._version, False
        self.down: Copy | None = pool.copy_down(tensor, self.host)
        self._up: weakref.ref[torch.Tensor] | None = None

    def settle(self) -> None:
        """Waits until it is on the host, and counts its bytes on the device as free."""
        if self.down is not None and self._source is not None:
            self.down.wait_on_host()
            self._changed = self._source._version != self._version
            self.down = self._source = None
            self._pool.give(self.nbytes, "activations")

    def fetch(self) -> torch.Tensor:
        """The tensor on the device; the same one for all who ask while it is there.

        Raises:
            Refusal: it was changed while its copy was under way, as autograd says of any change.
        """
        self.settle()
        if self._changed:
            raise Refusal(
                f"the backward of an operation that saved {tuple(self.host.shape)}",
                "it was changed in place while it was on its way to the host",
                "the copy may have the old numbers or the new ones: change another tensor",
            )
        there = self._up() if self._up is not None else None
        if there is not None:
            return there
        self._pool.take(self.nbytes, "activations", "an activation")
        tensor = torch.empty_like(self.host, device=self._device)
        self._pool.copy_up(self.host, tensor).wait()
        self._up = weakref.ref(tensor)
        weakref.finalize(tensor.untyped_storage(), self._pool.give, self.nbytes, "activations")
        return tensor


class offload_activations(torch.autograd.graph.saved_tensors_hooks):
    """`with offload_activations(pool): loss = model(x)`; the backward may come after the block.

    A tensor that several operations save goes down once. Parameters stay, and so do tensors below
    `smallest` bytes, whose copy would cost more than it frees. At the end of the block all is down.

    Args:
        pool: the device; what is saved is counted there until it is down.
        smallest: bytes.

    Raises:
        OutOfMemory: (in forward and backward) an activation does not fit.
        Refusal: (in backward) an activation was changed in place too soon after it was saved.
    """

    def __init__(self, pool: DevicePool, smallest: int = 1 << 12) -> None:
        self._pool = pool
        self._smallest = smallest
        # By memory, and only as long as that is there: its address may be used again.
        self._known: weakref.WeakKeyDictionary[Any, dict[Any, _Saved]] = weakref.WeakKeyDictionary()
        self._under_way: deque[_Saved] = deque()
        super().__init__(self._pack, self._unpack)

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        while self._under_way:  # also what no backward will ask for
            self._under_way.popleft().settle()

    def _pack(self, tensor: torch.Tensor) -> torch.Tensor | _Saved:
        if tensor.layout is not torch.strided:
            return tensor  # a sparse one has no memory of its own to copy
        base = tensor._base if tensor._base is not None else tensor
        if isinstance(base, nn.Parameter) or tensor.nbytes < self._smallest:
            return tensor
        known = self._known.setdefault(tensor.untyped_storage(), {})
        layout = (tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype)
        key = (*layout, tensor.is_conj(), tensor.is_neg(), tensor._version)
        if key not in known:
            known[key] = self._send(tensor)
        return known[key]

    def _send(self, tensor: torch.Tensor) -> _Saved:
        """Starts a copy down; at most two are under way, and what they hold is counted."""
        while len(self._under_way) >= 2:
            self._under_way.popleft().settle()
        self._pool.take(tensor.nbytes, "activations", "an activation that is saved")
        saved = _Saved(tensor, self._pool)
        self._under_way.append(saved)
        return saved

    def _unpack(self, packed: torch.Tensor | _Saved) -> torch.Tensor:
        return packed.fetch() if isinstance(packed, _Saved) else packed
