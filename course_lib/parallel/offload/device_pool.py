"""A device with a budget, and the link to it: memory that is counted, copies that run beside work.

Notebook: 05 Offload (all exercises).
Paper: Ren et al., "ZeRO-Offload" (2021), section 4; Rajbhandari et al., "ZeRO-Infinity" (2021),
section 6.
Costs S bytes on the link for a copy of S bytes, and nothing on the network.
The production version is the CUDA allocator with pinned host memory. Here a device without a GPU is
a budget: its tensors lie in the same memory, but are counted, and their copies take a thread.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch

from course_lib.trace import Ledger, Refusal
from course_lib.trace.memory import held_bytes


class OutOfMemory(Refusal, RuntimeError):
    """A request that does not fit the device's budget; `found` is what is there already.

    A RuntimeError as well, as `torch.OutOfMemoryError` is one.
    """


class Copy:
    """A copy under way. Its target may be read, and its source written, only after `wait`.

    Args:
        target: what is written.
        done: says when, on the CPU; a CUDA event on a GPU.
    """

    def __init__(self, target: torch.Tensor, done: Any) -> None:
        self._target = target
        self._done = done

    def wait(self) -> torch.Tensor:
        """The target, complete. On a GPU the current stream waits, and the host does not."""
        if isinstance(self._done, Future):
            self._done.result()
        else:
            torch.cuda.current_stream().wait_event(self._done)
        return self._target

    def wait_on_host(self) -> torch.Tensor:
        """The target, complete also for code that runs on the host."""
        if not isinstance(self._done, Future):
            self._done.synchronize()
        return self.wait()

    @property
    def done(self) -> bool:
        """Whether the copy has ended."""
        return bool(self._done.done() if isinstance(self._done, Future) else self._done.query())


class DevicePool:
    """What fits on the device, and the two lanes of the link to it, up and down.

    Args:
        budget: bytes that the device has.
        ledger: where the bytes held are booked, by memory class; None books nothing.
        bandwidth: bytes per second and direction of an emulated link; None copies at full speed.
            A GPU's link is not emulated.
        device: where device tensors are.
        poison: fills buffers with NaN when they are taken and when they are given back, so that a
            missing wait or a use after freeing shows in every run.

    Attributes:
        held: bytes on the device now.
        peak: the most there ever were.
        up: bytes copied to the device so far.
        down: bytes copied from it so far.
    """

    def __init__(
        self,
        budget: int,
        ledger: Ledger | None = None,
        bandwidth: float | None = None,
        device: torch.device | str = "cpu",
        poison: bool = False,
    ) -> None:
        self.budget = budget
        self.ledger = ledger or Ledger(0)
        self.bandwidth = bandwidth
        self.device = torch.device(device)
        self.poison = poison
        self.held = self.peak = self.up = self.down = 0
        self._lanes: dict[str, Any] = {}

    # --- memory ----------------------------------------------------------------------------------
    def take(self, count: int, memory_class: str, what: str = "a buffer") -> None:
        """Counts bytes as held on the device.

        Args:
            count: bytes.
            memory_class: one of the ledger's.
            what: name for the message.

        Raises:
            OutOfMemory: they do not fit.
        """
        if self.held + count > self.budget:
            raise OutOfMemory(
                f"{count:,} bytes for {what} ({memory_class})",
                f"{self.held:,} of {self.budget:,} bytes are in use",
                f"{self.budget - self.held:,} bytes are free: keep less on the device at a time",
            )
        self.held += count
        self.peak = max(self.peak, self.held)
        self.ledger.add_memory(memory_class, count)

    def give(self, count: int, memory_class: str) -> None:
        """Counts bytes as free again."""
        self.held -= count
        self.ledger.add_memory(memory_class, -count)

    def adopt(self, tensors: Iterable[torch.Tensor], memory_class: str, what: str) -> None:
        """Counts tensors that are on the device already; shared storages once."""
        self.take(held_bytes(tensors), memory_class, what)

    def grow(self, tensor: torch.Tensor, memory_class: str, what: str) -> None:
        """Gives a tensor whose storage is empty its bytes on the device; values are undefined."""
        count = tensor.numel() * tensor.element_size()
        self.take(count, memory_class, what)
        tensor.untyped_storage().resize_(count)
        self._spoil(tensor)

    def shrink(self, tensor: torch.Tensor, memory_class: str) -> None:
        """Takes a tensor's bytes away; the tensor and all its views stay, without values."""
        self._spoil(tensor)
        self.give(tensor.untyped_storage().nbytes(), memory_class)
        tensor.untyped_storage().resize_(0)

    def _spoil(self, tensor: torch.Tensor) -> None:
        if self.poison and tensor.is_floating_point():
            tensor.fill_(float("nan"))

    # --- copies ----------------------------------------------------------------------------------
    def host_like(self, tensor: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
        """An empty host tensor for copies of `tensor`; pinned on a GPU, or copies cannot overlap.

        Args:
            tensor: for the shape.
            dtype: another dtype than its own.
        """
        pinned = self.device.type == "cuda"
        return torch.empty(tensor.shape, dtype=dtype or tensor.dtype, pin_memory=pinned)

    def copy_up(self, host: torch.Tensor, target: torch.Tensor) -> Copy:
        """Starts a copy to the device. Both tensors have one shape and dtype."""
        self.up += target.nbytes
        return self._copy("up", host, target)

    def copy_down(self, source: torch.Tensor, host: torch.Tensor) -> Copy:
        """Starts a copy from the device. Both tensors have one shape and dtype."""
        self.down += host.nbytes
        return self._copy("down", source, host)

    def _copy(self, lane: str, source: torch.Tensor, target: torch.Tensor) -> Copy:
        if source.dtype != target.dtype or source.shape != target.shape:
            raise Refusal(
                f"copy {lane} {tuple(source.shape)} {source.dtype}",
                f"a target of {tuple(target.shape)} {target.dtype}",
                "a link moves bytes; cast on one of its sides, before or after",
            )
        source, target = source.detach(), target.detach()
        if self.device.type == "cuda":
            return Copy(target, self._on_stream(lane, source, target))
        if lane not in self._lanes:
            self._lanes[lane] = ThreadPoolExecutor(1, f"copy {lane}")
        return Copy(target, self._lanes[lane].submit(self._on_thread, source, target))

    def _on_thread(self, source: torch.Tensor, target: torch.Tensor) -> None:
        begin = time.monotonic()
        if self.bandwidth is not None:
            time.sleep(max(0.0, source.nbytes / self.bandwidth - (time.monotonic() - begin)))
        target.copy_(source)

    def _on_stream(self, lane: str, source: torch.Tensor, target: torch.Tensor) -> torch.cuda.Event:
        stream = self._lanes.setdefault(lane, torch.cuda.Stream(self.device))
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream):
            target.copy_(source, non_blocking=True)
        for tensor in (source, target):
            if tensor.is_cuda:
                tensor.record_stream(stream)  # or the allocator would reuse it during the copy
        event = torch.cuda.Event()
        event.record(stream)
        return event

    # --- end -------------------------------------------------------------------------------------
    def close(self) -> None:
        """Ends the threads, after the copies that are under way."""
        for lane in self._lanes.values():
            if isinstance(lane, ThreadPoolExecutor):
                lane.shutdown()
        self._lanes.clear()

    def __enter__(self) -> DevicePool:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()
