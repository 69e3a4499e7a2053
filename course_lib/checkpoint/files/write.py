"""One rank's file of a checkpoint, and the note by which the committing rank knows that it is done.

Notebook: 11 Distributed checkpoint (save_sharded).
Source: FileSystemWriter of torch.distributed.checkpoint.
Costs S/N bytes to the disk and an fsync on each rank; two small files more.
The production version writes several files a rank, in several threads.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from course_lib.checkpoint.boxes import Box
from course_lib.checkpoint.errors import CheckpointError
from course_lib.checkpoint.files.manifest import BLOCK, MANIFEST, Manifest, StoredPiece, TensorEntry
from course_lib.checkpoint.files.store import publish, write_synced
from course_lib.checkpoint.plan import Piece

FIRST_PAUSE, LAST_PAUSE = 0.001, 0.1  # seconds between two looks for the other ranks' notes


def raw_bytes(tensor: torch.Tensor) -> memoryview:
    """A tensor's elements, row-major, on the CPU; not a copy if it lies so already."""
    flat = tensor.detach().cpu().resolve_conj().contiguous().reshape(-1)
    flat = flat.as_strided(flat.shape, (1,))  # a lone element may keep the stride of where it was
    return memoryview(flat.view(torch.uint8).numpy())  # type: ignore[arg-type]


def write_part(folder: Path, index: int, pieces: Sequence[Piece]) -> None:
    """Writes `rank-00000.bin`, waits until it is on the disk, and leaves a note of what is in it.

    Memory: one piece, if it is not on the CPU or has gaps; otherwise none.

    Args:
        folder: of the unfinished checkpoint.
        index: of the rank.
        pieces: those that it writes.
    """
    records: list[list[Any]] = []
    name, at = f"rank-{index:05}.bin", 0
    if pieces:
        with open(folder / name, "xb", buffering=0) as file:
            for piece in pieces:
                data = raw_bytes(piece.tensor)
                blocks = [data[i : i + BLOCK] for i in range(0, len(data), BLOCK)]
                for block in blocks:
                    _write(file.fileno(), block)
                sums = [zlib.crc32(block) for block in blocks]
                box = piece.box
                records.append([piece.name, box.offsets, box.sizes, name, at, len(data), sums])
                at += len(data)
            os.fsync(file.fileno())
    note = _note(folder, index)
    note.with_suffix(".new").write_text(json.dumps(records))
    note.with_suffix(".new").rename(note)  # whoever sees it sees all of it


def commit(
    folder: Path,
    ranks: int,
    tensors: dict[str, TensorEntry],
    about: dict[str, Any],
    keep: int | None,
    given_up: Callable[[float], bool],
) -> Path:
    """Waits for all notes, writes the manifest, and gives the checkpoint its name.

    The ranks meet in the folder and not in a collective, since this runs in a thread while the
    training uses the group.

    Args:
        folder: of the unfinished checkpoint.
        ranks: how many write.
        tensors: all that is in it.
        about: step, extra and per_rank of the manifest.
        keep: as for `publish`.
        given_up: sleeps for the seconds it is given, and says whether waiting has become useless.

    Raises:
        CheckpointError: it was given up.
    """
    notes = [_note(folder, index) for index in range(ranks)]
    pause = FIRST_PAUSE
    while not all(note.exists() for note in notes):
        # Longer and longer: a thread that never rests looks as if the rank were still at work.
        pause = min(1.2 * pause, LAST_PAUSE)
        if given_up(pause):
            missing = [note.name for note in notes if not note.exists()]
            raise CheckpointError(
                f"commit {folder.name}", f"no {missing[0]}", "a rank did not write its part"
            )
    pieces = [_piece(record) for note in notes for record in json.loads(note.read_text())]
    files: dict[str, int] = {}
    for piece in pieces:
        files[piece.file] = max(files.get(piece.file, 0), piece.at + piece.length)
    for note in notes:
        note.unlink()
    manifest = Manifest(about["step"], tensors, pieces, files, about["extra"], about["per_rank"])
    write_synced(folder / MANIFEST, manifest.to_bytes())
    return publish(folder, keep)


def _note(folder: Path, index: int) -> Path:
    return folder / f"rank-{index:05}.note"


def _piece(record: list[Any]) -> StoredPiece:
    name, offsets, sizes, file, at, length, sums = record
    return StoredPiece(name, Box(tuple(offsets), tuple(sizes)), file, at, length, tuple(sums))


def _write(handle: int, data: memoryview) -> None:
    """All of it: write(2) may take less than it was given."""
    while data:
        data = data[os.write(handle, data) :]
