"""Loading into a different layout: each rank reads the bytes of its own boxes from any file.

Notebook 11. A checkpoint outlives the layout that wrote it: 4 ranks saved it and 2 continue, or a
matrix that was cut by rows is now cut by columns. No rank needs the whole tensor for that. A layout
is a list of boxes, so a rank needs the overlaps of its boxes with the saved ones.

The checkpoint of step 20 is a folder, `step-00000020`, with the files `rank-0.bin`, `rank-1.bin`,
... and `manifest.json`, as `save_sharded` writes them:

    {"step": 20,
     "pieces": [{"name": "w", "shape": [4, 6], "dtype": "bfloat16",    the whole tensor
                 "offsets": [2, 0], "sizes": [2, 6], "bytes": 24,      the box
                 "file": "rank-1.bin", "at": 128}, ...]}               where its first byte is

A box's values lie in the file row by row, without gaps; the boxes of one tensor do not overlap, and
together hold all of it.

Rules

- The newest complete checkpoint is loaded, the same on every rank. `complete_steps` lists those
  that this rank sees; a save may finish between two calls. So index 0 calls it, and sends the
  others the number; nothing else is sent.
- A rank reads only what it needs: if it has a third of a row, it reads a third. Besides its
  tensors, it needs memory for copies of at most one of its pieces. Map a file (`numpy.memmap(file,
  numpy.uint8, "c", offset=..., shape=...)` is bytes that are read when they are looked at, and
  `torch.from_numpy` does not copy them), or seek in one that is opened with `buffering=0`.
- Tensors are found by their names: the order says nothing, neither of `wanted` nor of the manifest.
  So a moment (`w.exp_avg`) comes to its own weight, however parameters are numbered now.
- ZeRO makes flat vectors longer, so that they divide by the ranks: a wanted piece may reach over
  its tensor's end, or lie behind it. What is outside is padding, and becomes 0.
- Before a tensor is changed, all are checked: a name that the checkpoint does not have, another
  shape of the whole tensor or another dtype is a `ValueError` that names the tensor. A file that
  ends before a saved box of which something is read is a `ValueError` as well, which names the
  file; other tensors may have been filled by then.

Tensors are written in place. They have any dtype and any strides; some are scalars, some parts of
others, some need a gradient (`tensor.detach()` is the same memory, and may be written to).
`x.view(dtype)` reads a flat tensor of bytes as numbers.

Your answer may use `comm` of `course_lib`.
"""

import json
import operator
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy
import torch

from course_lib.comm import Group, broadcast


class Piece(NamedTuple):
    """A box of a tensor that a rank wants.

    Attributes:
        name: of the whole tensor.
        shape: of the whole tensor.
        offsets: where the box begins in it, a number for each dim.
        tensor: is filled; its shape is the size of the box. On the CPU.
    """

    name: str
    shape: tuple[int, ...]
    offsets: tuple[int, ...]
    tensor: torch.Tensor


def complete_steps(folder: str) -> list[int]:
    """The steps whose checkpoint is complete: it has a manifest, which is written last."""
    folders = [path.parent for path in Path(folder).glob("step-*/manifest.json")]
    return sorted(int(path.name.removeprefix("step-")) for path in folders)


def end(offsets: Sequence[int], sizes: Sequence[int]) -> list[int]:
    """Where a box ends: the first index behind it, in each dim."""
    return [offset + size for offset, size in zip(offsets, sizes, strict=True)]


def slices(first: Sequence[int], last: Sequence[int], offsets: Sequence[int]) -> tuple[slice, ...]:
    """Where `first` to `last` of the whole tensor are, in a box that begins at `offsets`."""
    places = zip(first, last, offsets, strict=True)
    return tuple(slice(start - offset, stop - offset) for start, stop, offset in places)


def load_resharded(folder: str, wanted: Sequence[Piece], group: Group) -> int:
    """Fills this rank's tensors from the newest complete checkpoint.

    Args:
        folder: of all checkpoints.
        wanted: what this rank is to have.
        group: the ranks that load; any number of others may have saved.

    Returns:
        The step.

    Raises:
        FileNotFoundError: no checkpoint is complete; on every rank.
        ValueError: a tensor is not in it as it is wanted, or a file is too short.
    """
    raise NotImplementedError("load_resharded: write your answer here")
