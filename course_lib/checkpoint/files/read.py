"""Filling a box from the stored pieces that it meets, block by block, each held to its checksum.

Notebook: 11 Distributed checkpoint (load_resharded).
Source: DefaultLoadPlanner of torch.distributed.checkpoint; crc32 as in zlib.
Costs: reads the blocks of 1 MiB that the box touches, and no others; holds one of them.
The production version reads with several threads, or maps the file into memory.

A block is a stretch of a flattened piece, so it is a few boxes as well (`boxes_of_range`): what a
block has for us is again an intersection of boxes.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
from pathlib import Path

import torch

from course_lib.checkpoint.boxes import Box, boxes_of_range
from course_lib.checkpoint.errors import CheckpointError
from course_lib.checkpoint.files.distrust import open_ordinary
from course_lib.checkpoint.files.manifest import BLOCK, DTYPES, Manifest, StoredPiece, TensorEntry
from course_lib.checkpoint.plan import Piece


class Reader:
    """Reads one checkpoint; a context manager that closes its files.

    Args:
        folder: where its files are.
        manifest: what they hold.

    Attributes:
        bytes_read: from the files, so far.
    """

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder, self.manifest = folder, manifest
        self.bytes_read = 0
        self._handles: dict[str, int] = {}
        self._block = torch.empty(BLOCK, dtype=torch.uint8)
        self._held: tuple[str, int] | None = None  # file and place of what is in the block

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._handles.values():
            os.close(handle)
        self._handles.clear()

    def check(self, wanted: Sequence[Piece]) -> None:
        """Refuses what the checkpoint does not have, before a tensor is changed.

        Raises:
            CheckpointError: a name is missing, or has another shape or dtype.
        """
        tensors = self.manifest.tensors
        for piece in wanted:
            found = tensors.get(piece.name)
            if found is None:
                raise CheckpointError(
                    f"load {piece.name} from {self.folder}",
                    f"{len(tensors)} other tensors, such as {', '.join(sorted(tensors)[:3])}",
                    "what is loaded by name must have been saved under that name",
                )
            if found != TensorEntry(tuple(piece.shape), piece.dtype):
                raise CheckpointError(
                    f"load {piece.name}, shape {tuple(piece.shape)}, {piece.dtype}",
                    f"shape {found.shape}, {found.dtype} in {self.folder}",
                    "a layout may change between save and load, a tensor may not",
                )

    @torch.no_grad()
    def fill(self, wanted: Piece) -> None:
        """Reads the values of a piece into its tensor.

        Raises:
            CheckpointError: a file is damaged; the tensor may be half filled then.
        """
        for stored in self.manifest.by_tensor[wanted.name]:
            common = stored.box.intersect(wanted.box)
            if common is not None:
                target = wanted.tensor.detach()[common.slices(wanted.box)]
                self._copy(stored, common, target)

    def _copy(self, stored: StoredPiece, common: Box, target: torch.Tensor) -> None:
        """The values of `common`, a part of a stored piece, into a tensor of its sizes."""
        dtype = DTYPES[self.manifest.tensors[stored.tensor].dtype]
        needed = common.range_in(stored.box)
        first, last = needed.start * dtype.itemsize // BLOCK, needed[-1] * dtype.itemsize // BLOCK
        per_block = BLOCK // dtype.itemsize
        for number in range(first, last + 1):
            values = self._read(stored, number).view(dtype)
            start = number * per_block
            at = 0
            for inner in boxes_of_range(stored.box.sizes, start, start + len(values)):
                box = inner.moved(stored.box.offsets)
                part = box.intersect(common)
                if part is not None:
                    here = values[at : at + box.count].view(box.sizes)
                    target[part.slices(common)].copy_(here[part.slices(box)])
                at += box.count

    def _read(self, stored: StoredPiece, number: int) -> torch.Tensor:
        """Block `number` of a stored piece, as bytes; valid until the next one is read."""
        size = min(BLOCK, stored.length - number * BLOCK)
        place = stored.at + number * BLOCK
        block = self._block[:size]
        if self._held == (stored.file, place):  # neighbouring boxes share a block
            return block
        self._held = None
        view = memoryview(block.numpy())  # type: ignore[arg-type]
        done = 0
        while done < size:
            try:
                count = os.preadv(self._open(stored.file), [view[done:]], place + done)
            except OSError as error:
                raise self._damaged(stored, str(error)) from error
            if not count:
                raise self._damaged(stored, f"its end, {size - done} bytes too early")
            done += count
        self.bytes_read += size
        if stored.checksums is not None and zlib.crc32(view) != stored.checksums[number]:
            raise self._damaged(stored, f"a different checksum for bytes {place} to {place + size}")
        self._held = stored.file, place
        return block

    def _open(self, name: str) -> int:
        if name not in self._handles:
            self._handles[name] = open_ordinary(self.folder / name)
        return self._handles[name]

    def _damaged(self, stored: StoredPiece, found: str) -> CheckpointError:
        return CheckpointError(
            f"read {stored.tensor} from {self.folder / stored.file}",
            found,
            "the file was damaged since it was saved: load an older checkpoint",
        )
