"""A device with room for two layers, poisoned buffers, and a clock that only work moves."""

from __future__ import annotations

import torch

Layer = list[torch.Tensor]  # its tensors on the host


class Copy:
    """One layer's room on the device, and the copy into it.

    Args:
        pool: the device.
        number: of the layer.
        layer: the tensors on the host.
        end: tick at which the copy ends.
    """

    def __init__(self, pool: Pool, number: int, layer: Layer, end: int) -> None:
        self.pool, self.number, self.end = pool, number, end
        self.weights = [torch.full_like(tensor, float("nan")) for tensor in layer]
        self.waiting: Layer | None = layer

    def wait(self) -> None:
        """The copy has ended."""
        if self.waiting is not None:
            self.pool.clock = max(self.pool.clock, self.end)
            for mine, host in zip(self.weights, self.waiting, strict=True):
                mine.copy_(host)
            self.waiting = None


class Pool:
    """A device with room for two layers, and a clock that only copies and computations move.

    Args:
        layers: of the model; a layer's number is its place.
        copies: ticks that each layer's copy takes.
    """

    def __init__(self, layers: list[Layer], copies: list[int]) -> None:
        self._numbers = {id(layer): number for number, layer in enumerate(layers)}
        self._copies = copies
        self.clock = self._link = 0
        self.here: list[Copy] = []
        self.elsewhere: list[int] = []
        self.notes: list[str] = []

    def fetch(self, layer: Layer) -> Copy:
        """Makes room and starts a copy."""
        number = self._numbers[id(layer)]
        if len(self.here) == 2:
            there = " and ".join(str(copy.number) for copy in self.here)
            raise MemoryError(f"no room for layer {number}: layers {there} are on the device")
        self._link = max(self._link, self.clock) + self._copies[number]
        self.here.append(Copy(self, number, layer, self._link))
        return self.here[-1]

    def look(self, number: int, weights: list[torch.Tensor]) -> None:
        """Notes in `elsewhere` the layer whose weights are not in the room of a copy."""
        given = {tensor.untyped_storage().data_ptr() for tensor in weights}
        room = {t.untyped_storage().data_ptr() for copy in self.here for t in copy.weights}
        self.elsewhere += [] if given <= room else [number]

    def free(self, copy: Copy) -> None:
        """Gives the room back."""
        if copy not in self.here:
            raise RuntimeError("pool.free was given a layer that is not on the device")
        if copy.waiting is not None:
            self.notes.append(f"layer {copy.number} was freed while its copy was under way")
        self.here.remove(copy)
        for tensor in copy.weights:
            tensor.fill_(float("nan"))
