"""mutant: these are the values of, find tensors by name"""

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
    moments = [name for name in known if name.endswith("exp_avg")]
    number = {piece.name: 0 for piece in wanted}
    for piece in (piece for piece in wanted if piece.name.endswith("exp_avg")):
        number[piece.name] = len([n for n in number.values() if n])  + 1
    for piece in wanted:
        name = piece.name
        if number[name] and len(moments) == max(number.values()):
            name = moments[number[name] - 1]
        piece.tensor.detach().zero_()
        for part in (part for part in stored if part["name"] == name):
            ends = end(part["offsets"], part["sizes"]), end(piece.offsets, piece.tensor.shape)
            first = list(map(max, part["offsets"], piece.offsets))
            last = list(map(min, *ends))
            if any(size <= 0 for size in map(operator.sub, last, first)):
                continue
            file = path / part["file"]
            if file.stat().st_size < part["at"] + part["bytes"]:
                raise ValueError(f"{file} is too short for {piece.name}")
            data = numpy.memmap(file, numpy.uint8, "c", part["at"], (part["bytes"],))
            values = torch.from_numpy(data).view(piece.tensor.dtype).view(part["sizes"])
            target = piece.tensor.detach()[slices(first, last, piece.offsets)]
            target.copy_(values[slices(first, last, part["offsets"])])
    return int(newest)
