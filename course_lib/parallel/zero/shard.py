"""A model's parameters as one flat tensor, cut into equal shards: what ZeRO and FSDP divide.

Notebook: 04 ZeRO (partition).
Paper: Rajbhandari et al., "ZeRO" (2020), section 5; Zhao et al., "PyTorch FSDP" (2023), section 4.
Costs at most N-1 elements of padding; no communication.
The production version (FSDP2) shards each parameter by itself along dim 0, which keeps its shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from course_lib.trace import Refusal


@dataclass(frozen=True)
class Piece:
    """The part of one parameter that lies in one shard.

    Attributes:
        parameter: number of the parameter.
        begin: first element of the part, counted in the flattened parameter.
        at: where the part begins in the shard.
        count: elements.
    """

    parameter: int
    begin: int
    at: int
    count: int


class FlatLayout:
    """Where every parameter lies in a flat tensor of N equal shards.

    Args:
        shapes: of the parameters, in order.
        parts: N, shards.

    Attributes:
        shard_size: elements of a shard, the same for all.
        total: elements of the parameters, without padding.
    """

    def __init__(self, shapes: Sequence[torch.Size], parts: int) -> None:
        self.shapes = list(shapes)
        self.counts = [shape.numel() for shape in shapes]
        self.total = sum(self.counts)
        self.shard_size = -(-self.total // parts)
        self.parts = parts
        self.begins = [sum(self.counts[:i]) for i in range(len(self.counts))]

    @property
    def padded(self) -> int:
        """Elements of all shards together."""
        return self.shard_size * self.parts

    def pieces(self, index: int) -> list[Piece]:
        """What lies in shard `index`, in order; padding belongs to no piece."""
        low, high = index * self.shard_size, (index + 1) * self.shard_size
        found = []
        for number, (begin, count) in enumerate(zip(self.begins, self.counts, strict=True)):
            first, last = max(begin, low), min(begin + count, high)
            if first < last:
                found.append(Piece(number, first - begin, first - low, last - first))
        return found

    def ranges(self, number: int) -> tuple[tuple[int, int], ...]:
        """For each shard, which elements of a parameter it has: the first, and behind the last."""
        begin, count, size = self.begins[number], self.counts[number], self.shard_size
        ends = [min(max(i * size - begin, 0), count) for i in range(self.parts + 1)]
        return tuple(zip(ends[:-1], ends[1:], strict=True))

    def views(self, flat: torch.Tensor) -> list[torch.Tensor]:
        """The parameters as views of a flat tensor of at least `total` elements."""
        return [
            flat[begin : begin + count].view(shape)
            for begin, count, shape in zip(self.begins, self.counts, self.shapes, strict=True)
        ]


def flatten(parameters: Sequence[nn.Parameter], parts: int) -> tuple[FlatLayout, torch.Tensor]:
    """Moves parameters into one padded flat tensor; they become views of it, values kept.

    Args:
        parameters: of one dtype and device, each once.
        parts: shards that the flat tensor is to be cut into.

    Raises:
        Refusal: no parameters, or several dtypes or devices.
    """
    kinds = {(p.dtype, p.device) for p in parameters}
    if len(kinds) != 1:
        raise Refusal(
            f"flatten {len(parameters)} parameters",
            f"the dtypes and devices {sorted(map(str, kinds))}",
            "a flat tensor has one of each: flatten each kind by itself",
        )
    layout = FlatLayout([p.shape for p in parameters], parts)
    flat = parameters[0].new_zeros(layout.padded)
    with torch.no_grad():
        for parameter, view in zip(parameters, layout.views(flat), strict=True):
            view.copy_(parameter)
            parameter.data = view
    return layout, flat
