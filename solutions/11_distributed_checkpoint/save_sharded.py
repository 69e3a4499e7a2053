"""A sharded checkpoint: each rank writes its part, and a crash leaves the old one or the new one.

Notebook 11. No rank holds a large model as a whole, so no rank can save it alone: gathering it on
one rank takes memory that it does not have, while all other disks are idle. Instead, every rank
writes its own pieces into its own file, all at the same time. A piece is a box of a tensor:
`offsets` say where it begins, the shape of its values how far it reaches. This fits every layout:
rows or columns of tensor parallelism, or a stretch of ZeRO's flat vector. A box that several ranks
hold (replicas) is written once, by one of them.

The checkpoint of step 20 is a folder, `step-00000020`, with the files `rank-0.bin`, `rank-1.bin`,
... and `manifest.json`. It is complete if the manifest is there: so the manifest comes last, and
appears at once, as a whole. It is JSON:

    {"step": 20,
     "pieces": [{"name": "w", "shape": [4, 6], "dtype": "bfloat16",    the whole tensor
                 "offsets": [2, 0], "sizes": [2, 6], "bytes": 24,      the box
                 "file": "rank-1.bin", "at": 128}, ...]}               where its first byte is

A box's values lie in the file row by row, without gaps, in their own dtype, as in memory.

Rules

- Rank i of the group writes its values into `rank-{i}.bin` and nowhere else. No values are sent,
  and at no time does a rank hold copies of more than one piece.
- Boxes are equal or do not overlap, and together hold every element of every tensor. Go through
  them in an order that is the same on every rank, and give each to the one of its holders that has
  the fewest bytes to write so far.
- What is written is only in memory at first: when `os.fsync(file.fileno())` returns, it is on the
  disk. (`file.flush()` first: Python has a buffer of its own.)
- Index 0 writes the manifest, when the bytes of *all* ranks are on the disk: under another name,
  synced as well, and given its name by `os.replace`, which is all or nothing.
- No rank returns before the checkpoint is complete.
- A complete checkpoint is never touched, neither this step's (`start_step` sees to that) nor
  another's. Whatever an interrupted save has left of this step is overwritten.

Values may have any dtype and any strides; some are scalars, some empty, some need a gradient.
`.numpy()` does not know bfloat16; but if x is contiguous, `x.view(-1).view(torch.uint8).numpy()`
are its bytes, whatever its dtype, without a copy. `file.write` takes that, and `file.tell()` says
how much has been written.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from course_lib.comm import Group, all_gather, barrier


class Piece(NamedTuple):
    """A box of a tensor that a rank holds.

    Attributes:
        name: of the whole tensor.
        shape: of the whole tensor.
        offsets: where the box begins in it, a number for each dim.
        tensor: the values; its shape is the size of the box. On the CPU.
    """

    name: str
    shape: tuple[int, ...]
    offsets: tuple[int, ...]
    tensor: torch.Tensor

    def about(self) -> dict[str, Any]:
        """What the manifest says of it, but for `file` and `at`."""
        return {
            "name": self.name,
            "shape": list(self.shape),
            "dtype": str(self.tensor.dtype).removeprefix("torch."),
            "offsets": list(self.offsets),
            "sizes": list(self.tensor.shape),
            "bytes": self.tensor.nbytes,
        }


def start_step(folder: str, step: int) -> Path:
    """The folder of a step, made if it is not there; every rank calls this first.

    Raises:
        FileExistsError: the step is complete.
    """
    path = Path(folder) / f"step-{step:08}"
    if (path / "manifest.json").exists():  # mutate: same
        raise FileExistsError(f"step {step} has been saved: {path}")
    path.mkdir(exist_ok=True)  # mutate: same
    return path


def share(values: list[Any], group: Group) -> list[list[Any]]:
    """Every rank's list, in the order of the ranks, on every rank.

    Args:
        values: small things that JSON can hold, such as text, or dicts of numbers.
        group: the ranks. None returns before all have called it.
    """
    text = torch.frombuffer(bytearray(json.dumps(values).encode()), dtype=torch.uint8)
    sizes = torch.empty(group.size, dtype=torch.int64)
    all_gather(sizes, torch.tensor([len(text)]), group)
    mine = torch.zeros(int(sizes.max()), dtype=torch.uint8)  # mutate: same
    mine[: len(text)] = text  # mutate: same
    whole = torch.empty(group.size * len(mine), dtype=torch.uint8)
    all_gather(whole, mine, group)  # mutate: same
    texts = zip(whole.view(group.size, -1), sizes.tolist(), strict=True)  # mutate: same
    return [json.loads(bytes(row[:size].tolist())) for row, size in texts]


def save_sharded(pieces: Sequence[Piece], folder: str, group: Group, step: int) -> None:
    """Saves what the ranks have together, as one checkpoint that appears all at once.

    Args:
        pieces: what this rank has, each box once.
        folder: of all checkpoints; it exists, and every rank sees it.
        group: the ranks. All call this, with the same folder and step.
        step: of the training.

    Raises:
        FileExistsError: this step has been saved.
    """
    # BEGIN SOLUTION
    path = start_step(folder, step)  # mutate: same
    boxes = [json.dumps(piece.about()) for piece in pieces]
    everyone = share(boxes, group)  # mutate: same
    load, writer = [0] * group.size, {}  # mutate: same
    for box in sorted({box for theirs in everyone for box in theirs}):  # mutate: same
        holders = [index for index in range(group.size) if box in everyone[index]]
        writer[box] = min(holders, key=lambda index: load[index])
        load[writer[box]] += json.loads(box)["bytes"]
    name, stored = f"rank-{group.index}.bin", []
    with open(path / name, "wb") as file:
        for box, piece in zip(boxes, pieces, strict=True):  # mutate: same
            if writer[box] == group.index:
                stored.append({**json.loads(box), "file": name, "at": file.tell()})  # mutate: same
                flat = piece.tensor.contiguous().view(-1)
                file.write(flat.view(torch.uint8).numpy())
        file.flush()
        os.fsync(file.fileno())
    stored = sum(share(stored, group), [])  # it returns when all have synced
    if group.index == 0:  # mutate: same
        with open(path / "manifest.new", "w") as file:  # mutate: same
            json.dump({"step": step, "pieces": stored}, file)  # mutate: same
            file.flush()  # mutate: same
            os.fsync(file.fileno())  # mutate: same
        os.replace(path / "manifest.new", path / "manifest.json")  # mutate: same
    barrier(group)
    # END SOLUTION
