"""variant: seeks to each stretch of a row, in an unbuffered file; no numpy"""

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

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
    newest = torch.zeros(1, dtype=torch.int64)
    if group.index == 0:
        newest[0] = max([-1, *complete_steps(folder)])
    broadcast(newest, 0, group)
    step = int(newest.item())
    path = Path(folder, f"step-{step:08}")
    if step < 0:
        raise FileNotFoundError(str(folder))
    boxes: dict[str, list[dict]] = {}
    with open(path / "manifest.json") as opened:
        for box in json.load(opened)["pieces"]:
            boxes.setdefault(box["name"], []).append(box)
    for piece in wanted:
        if piece.name not in boxes:
            raise KeyError(piece.name)
        box = boxes[piece.name][0]
        if tuple(box["shape"]) != tuple(piece.shape) or f"torch.{box['dtype']}" != str(piece.tensor.dtype):
            raise ValueError(f"{piece.name}: {box}")
    with torch.no_grad():
        for piece in wanted:
            piece.tensor.fill_(0)
            for box in boxes[piece.name]:
                _fill(path / box["file"], box, piece)
    return step


def _fill(path: Path, box: dict, piece: Piece) -> None:
    low = [max(a, b) for a, b in zip(box["offsets"], piece.offsets)]
    high = [min(a, b) for a, b in zip(end(box["offsets"], box["sizes"]), end(piece.offsets, piece.tensor.shape))]
    if any(a >= b for a, b in zip(low, high)):
        return
    item = piece.tensor.itemsize
    with open(path, "rb", buffering=0) as file:
        for index in itertools.product(*(range(a, b) for a, b in zip(low[:-1], high[:-1]))):
            at = 0
            for here, start, size in zip((*index, *low[-1:]), box["offsets"], box["sizes"]):
                at = at * size + here - start
            count = high[-1] - low[-1] if low else 1
            file.seek(box["at"] + at * item)
            data = bytearray(file.read(count * item))
            if len(data) < count * item:
                raise ValueError(f"{path.name} ends too early")
            values = torch.frombuffer(data, dtype=piece.tensor.dtype)
            place = tuple(i - o for i, o in zip(index, piece.offsets))
            row = piece.tensor[place]
            if low:
                row = row[low[-1] - piece.offsets[-1] : high[-1] - piece.offsets[-1]]
                row.copy_(values)
            else:
                row.copy_(values[0])
