"""Who writes what: every box once, by one of the ranks that hold it, and no rank much more.

Notebook: 11 Distributed checkpoint (save_sharded: replicas written N times).
Source: the deduplication of torch.distributed.checkpoint's DefaultSavePlanner.
Costs nothing: every rank computes the same plan from the same claims.
The production version can also cut a replicated tensor into parts for several writers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from course_lib.checkpoint.boxes import Box, check_cover
from course_lib.checkpoint.errors import CheckpointError
from course_lib.checkpoint.files.manifest import DTYPES, TensorEntry


@dataclass(frozen=True)
class Piece:
    """A part of a global tensor that this rank has, to be saved or to be filled.

    Attributes:
        name: of the global tensor, the same in every layout.
        shape: of the global tensor.
        box: which part of it.
        tensor: the values, of the box's sizes; any strides, any device.

    Raises:
        CheckpointError: the box does not lie in the shape, the tensor does not fill the box, its
            dtype cannot be stored, or it is on the meta device and has no values.
    """

    name: str
    shape: tuple[int, ...]
    box: Box
    tensor: torch.Tensor

    def __post_init__(self) -> None:
        asked = f"a piece of {self.name}, shape {self.shape}"
        if not self.box.fits(self.shape) or tuple(self.tensor.shape) != self.box.sizes:
            raise CheckpointError(
                asked,
                f"{self.box} for a tensor of shape {tuple(self.tensor.shape)}",
                "the box lies in the whole, and the tensor has the sizes of the box",
            )
        if self.dtype not in DTYPES:
            raise CheckpointError(asked, self.dtype, f"what can be stored: {', '.join(DTYPES)}")
        if self.tensor.is_meta:
            raise CheckpointError(asked, "a tensor on the meta device", "no value has room there")

    @property
    def dtype(self) -> str:
        """Name of the dtype, as a manifest has it."""
        return str(self.tensor.dtype).removeprefix("torch.")


def claim(pieces: Sequence[Piece]) -> list[Any]:
    """What a rank tells the others of its pieces; those without an element say that they exist."""
    return [[p.name, p.shape, p.dtype, p.box.offsets, p.box.sizes] for p in pieces]


@dataclass(frozen=True)
class Plan:
    """What will be in a checkpoint, and who writes it.

    Attributes:
        tensors: all of them, by name.
        writes: for each rank the numbers of its pieces that it writes, in order.
    """

    tensors: dict[str, TensorEntry]
    writes: list[list[int]]


def make_plan(claims: Sequence[Sequence[Any]]) -> Plan:
    """Divides the boxes among the ranks that hold them: the largest first, to who has least so far.

    Args:
        claims: of each rank, as `claim` makes them.

    Raises:
        CheckpointError: two ranks mean different tensors by one name, boxes overlap without being
            the same, or an element is nowhere.
    """
    tensors: dict[str, TensorEntry] = {}
    holders: dict[tuple[str, Box], dict[int, int]] = {}
    for rank, listed in enumerate(claims):
        for number, (name, shape, dtype, offsets, sizes) in enumerate(listed):
            entry = TensorEntry(tuple(shape), dtype)
            if tensors.setdefault(name, entry) != entry:
                raise CheckpointError(
                    f"save {name} as {tensors[name]}",
                    f"rank {rank} has {entry}",
                    "one name is one tensor, with the same global shape and dtype on every rank",
                )
            if math.prod(sizes):
                box = Box(tuple(offsets), tuple(sizes))
                holders.setdefault((name, box), {}).setdefault(rank, number)
    boxes: dict[str, list[Box]] = {name: [] for name in tensors}
    for name, box in holders:
        boxes[name].append(box)
    for name, entry in tensors.items():
        check_cover(name, entry.shape, boxes[name])
    return Plan(tensors, _balance(tensors, holders, len(claims)))


def _balance(
    tensors: dict[str, TensorEntry], holders: dict[tuple[str, Box], dict[int, int]], ranks: int
) -> list[list[int]]:
    load = [0] * ranks
    writes: list[list[int]] = [[] for _ in range(ranks)]
    sizes = {key: key[1].count * tensors[key[0]].item for key in holders}
    # Boxes that one rank alone has come first: they leave no choice, and the others even it out.
    for key in sorted(holders, key=lambda key: (len(holders[key]) > 1, -sizes[key], key)):
        rank = min(holders[key], key=lambda rank: (load[rank], rank))
        load[rank] += sizes[key]
        writes[rank].append(holders[key][rank])
    return [sorted(numbers) for numbers in writes]
