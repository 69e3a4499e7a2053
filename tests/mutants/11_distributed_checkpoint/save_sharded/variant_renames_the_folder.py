"""variant: everything in an unfinished folder, which is renamed; os.write and a memoryview"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from course_lib.comm import Group, all_gather, barrier


class Piece(NamedTuple):
    name: str
    shape: tuple[int, ...]
    offsets: tuple[int, ...]
    tensor: torch.Tensor

    def about(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "shape": list(self.shape),
            "dtype": str(self.tensor.dtype).removeprefix("torch."),
            "offsets": list(self.offsets),
            "sizes": list(self.tensor.shape),
            "bytes": self.tensor.nbytes,
        }


def start_step(folder: str, step: int) -> Path:
    path = Path(folder) / f"step-{step:08}"
    if (path / "manifest.json").exists():
        raise FileExistsError(f"step {step} has been saved: {path}")
    path.mkdir(exist_ok=True)
    return path


def share(values: list[Any], group: Group) -> list[list[Any]]:
    text = torch.frombuffer(bytearray(json.dumps(values).encode()), dtype=torch.uint8)
    sizes = torch.empty(group.size, dtype=torch.int64)
    all_gather(sizes, torch.tensor([len(text)]), group)
    mine = torch.zeros(int(sizes.max()), dtype=torch.uint8)
    mine[: len(text)] = text
    whole = torch.empty(group.size * len(mine), dtype=torch.uint8)
    all_gather(whole, mine, group)
    texts = zip(whole.view(group.size, -1), sizes.tolist(), strict=True)
    return [json.loads(bytes(row[:size].tolist())) for row, size in texts]


def save_sharded(pieces: Sequence[Piece], folder: str, group: Group, step: int) -> None:
    path = start_step(folder, step)
    unfinished = Path(f"{path}.unfinished")
    unfinished.mkdir(exist_ok=True)
    plan: dict[str, list[int]] = {}
    for index, theirs in enumerate(share([piece.about() for piece in pieces], group)):
        for box in theirs:
            plan.setdefault(json.dumps(box), []).append(index)
    load = [0] * group.size
    mine = []
    for box in sorted(plan, key=lambda box: (len(plan[box]), -json.loads(box)["bytes"], box)):
        writer = min(plan[box], key=load.__getitem__)
        load[writer] += json.loads(box)["bytes"]
        if writer == group.index:
            mine.append(box)
    parts, at = [], 0
    descriptor = os.open(unfinished / f"rank-{group.index}.bin", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for piece in pieces:
        about = piece.about()
        if json.dumps(about) not in mine:
            continue
        flat = piece.tensor.detach().clone(memory_format=torch.contiguous_format).reshape(-1)
        left = memoryview(flat.view(torch.uint8).numpy())
        while len(left):
            left = left[os.write(descriptor, left) :]
        parts.append({**about, "file": f"rank-{group.index}.bin", "at": at})
        at += about["bytes"]
    os.fdatasync(descriptor) if hasattr(os, "fdatasync") else os.fsync(descriptor)
    os.close(descriptor)
    everyone = share(parts, group)
    if group.index == 0:
        with open(unfinished / "manifest.json", "wb", buffering=0) as file:
            file.write(json.dumps({"step": step, "pieces": sum(everyone, [])}).encode())
            os.fsync(file.fileno())
        for left_over in path.iterdir():
            left_over.unlink()
        unfinished.rename(path)
        handle = os.open(folder, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)
    barrier(group)
