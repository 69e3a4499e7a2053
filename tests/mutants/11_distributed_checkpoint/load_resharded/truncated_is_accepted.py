"""mutant: a file that was cut short was accepted"""

import json
import operator
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy
import torch

from course_lib.comm import Group, broadcast


class Piece(NamedTuple):
    name: str
    shape: tuple[int, ...]
    offsets: tuple[int, ...]
    tensor: torch.Tensor


def complete_steps(folder: str) -> list[int]:
    folders = [path.parent for path in Path(folder).glob("step-*/manifest.json")]
    return sorted(int(path.name.removeprefix("step-")) for path in folders)


def end(offsets: Sequence[int], sizes: Sequence[int]) -> list[int]:
    return [offset + size for offset, size in zip(offsets, sizes, strict=True)]


def slices(first: Sequence[int], last: Sequence[int], offsets: Sequence[int]) -> tuple[slice, ...]:
    places = zip(first, last, offsets, strict=True)
    return tuple(slice(start - offset, stop - offset) for start, stop, offset in places)


def load_resharded(folder: str, wanted: Sequence[Piece], group: Group) -> int:
    newest = torch.tensor(max(complete_steps(folder), default=-1))
    broadcast(newest, 0, group)
    if newest < 0:
        raise FileNotFoundError(f"no complete checkpoint in {folder}")
    path = Path(folder) / f"step-{int(newest):08}"
    stored = json.loads((path / "manifest.json").read_text())["pieces"]
    known = {part["name"]: (part["shape"], part["dtype"]) for part in stored}
    for piece in wanted:
        asked = list(piece.shape), str(piece.tensor.dtype).removeprefix("torch.")
        if known.get(piece.name) != asked:
            raise ValueError(f"{piece.name} is {known.get(piece.name)} in {path}, not {asked}")
    for piece in wanted:
        piece.tensor.detach().zero_()
        for part in (part for part in stored if part["name"] == piece.name):
            ends = end(part["offsets"], part["sizes"]), end(piece.offsets, piece.tensor.shape)
            first = list(map(max, part["offsets"], piece.offsets))
            last = list(map(min, *ends))
            if any(size <= 0 for size in map(operator.sub, last, first)):
                continue
            file = path / part["file"]
            if file.stat().st_size < part["at"] + part["bytes"]:
                part = {**part, "bytes": 0}
            data = numpy.zeros(sum(part["sizes"]) * 0 + int(numpy.prod(part["sizes"], dtype=int)) * piece.tensor.itemsize, numpy.uint8)
            if part["bytes"]:
                data = numpy.memmap(file, numpy.uint8, "c", part["at"], (part["bytes"],))
            values = torch.from_numpy(data).view(piece.tensor.dtype).view(part["sizes"])
            target = piece.tensor.detach()[slices(first, last, piece.offsets)]
            target.copy_(values[slices(first, last, part["offsets"])])
    return int(newest)
