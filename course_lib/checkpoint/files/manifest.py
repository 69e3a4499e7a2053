"""What a checkpoint says of itself: a JSON file that can be trusted only after it is checked.

Notebook: 11 Distributed checkpoint (save_sharded, load_resharded).
Source: `.metadata` of torch.distributed.checkpoint, which is a pickle; safetensors' JSON header.
Costs about 150 bytes a piece; read by every rank.
The production version keeps it in a pickle, so that reading a stranger's file may run his code.

Whoever reads it may rely on all of this: names of files lead nowhere else, files are as long as
they should be, pieces lie in their file without overlap and hold every element of every tensor
once. Whether the numbers are the ones that were written is found out when they are read.
"""

from __future__ import annotations

import json
import re
import stat
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from course_lib.checkpoint.boxes import Box, check_cover
from course_lib.checkpoint.errors import CheckpointError
from course_lib.checkpoint.files.distrust import (
    LONGEST,
    MOST_DIMS,
    Wrong,
    index_bytes,
    no_key_twice,
)

MANIFEST = "manifest.json"
FORMAT = "course_lib checkpoint 1"
BLOCK = 1 << 20  # bytes that one checksum is for, counted from a piece's first byte
DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.float64,
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.float8_e4m3fn,
        torch.float8_e5m2,
        torch.int64,
        torch.int32,
        torch.int16,
        torch.int8,
        torch.uint8,
        torch.bool,
        torch.complex64,
        torch.complex128,
    )
}
_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,200}")


@dataclass(frozen=True)
class TensorEntry:
    """A whole tensor.

    Attributes:
        shape: its global shape.
        dtype: a name in `DTYPES`.
    """

    shape: tuple[int, ...]
    dtype: str

    @property
    def item(self) -> int:
        """Bytes of an element."""
        return DTYPES[self.dtype].itemsize


@dataclass(frozen=True)
class StoredPiece:
    """A box of a tensor, and where its bytes are: row-major, least significant byte first.

    Attributes:
        tensor: name of the tensor.
        box: which part of it.
        file: name of the file.
        at: where its first byte is in the file.
        length: bytes.
        checksums: crc32 of each `BLOCK` of it; None if there are none to compare with.
    """

    tensor: str
    box: Box
    file: str
    at: int
    length: int
    checksums: tuple[int, ...] | None


@dataclass(frozen=True)
class Manifest:
    """All that a checkpoint holds.

    Attributes:
        step: after which step it was made.
        tensors: by name.
        pieces: where they are; every element of every tensor once.
        files: bytes of each file.
        extra: JSON of the whole job, such as the position in the data.
        per_rank: JSON of each rank that saved, such as the state of its random numbers.
    """

    step: int
    tensors: Mapping[str, TensorEntry]
    pieces: Sequence[StoredPiece]
    files: Mapping[str, int]
    extra: Any = None
    per_rank: Sequence[Any] = field(default_factory=list)

    @cached_property
    def by_tensor(self) -> dict[str, list[StoredPiece]]:
        """The pieces of each tensor."""
        found: dict[str, list[StoredPiece]] = {name: [] for name in self.tensors}
        for piece in self.pieces:
            found[piece.tensor].append(piece)
        return found

    def to_bytes(self) -> bytes:
        """As JSON, with a checksum of its own."""
        body = {
            "format": FORMAT,
            "step": self.step,
            "tensors": {n: [list(t.shape), t.dtype] for n, t in self.tensors.items()},
            "files": dict(self.files),
            "pieces": [
                [
                    p.tensor,
                    list(p.box.offsets),
                    list(p.box.sizes),
                    p.file,
                    p.at,
                    p.length,
                    list(p.checksums or ()),
                ]
                for p in self.pieces
            ],
            "extra": self.extra,
            "per_rank": list(self.per_rank),
        }
        text = _canonical(body)
        return b'{"crc32":%d,"manifest":%s}\n' % (zlib.crc32(text), text)


def read_manifest(folder: Path) -> Manifest:
    """The manifest of the checkpoint in `folder`, checked against itself and against the files.

    Raises:
        CheckpointError: it names the file that is missing, damaged, too long or too short, or says
            what cannot be.
    """
    path = folder / MANIFEST
    asked = f"read {path}"
    try:
        manifest = parse(_checked_body(index_bytes(path)))
        check_pieces(manifest)
        _check_files(manifest)
    except OSError as error:
        raise CheckpointError(asked, str(error), "without its manifest it is incomplete") from error
    except (Wrong, CheckpointError, RecursionError) as error:
        why = "it is damaged, or it was not made by this library"
        raise CheckpointError(asked, str(error), why) from error
    for name, size in manifest.files.items():
        check_file(folder / name, size)
    return manifest


def check_file(path: Path, size: int) -> None:
    """Refuses what is not an ordinary file of exactly `size` bytes."""
    try:
        found = path.lstat()
    except OSError as error:
        raise CheckpointError(
            f"read {path}", str(error), "the manifest names this file: the checkpoint is damaged"
        ) from error
    kind = "an ordinary file" if stat.S_ISREG(found.st_mode) else "a link or a device"
    if kind != "an ordinary file" or found.st_size != size:
        raise CheckpointError(
            f"read {path}, {size} bytes",
            f"{kind} of {found.st_size} bytes",
            "it was cut off, written to or replaced since it was saved",
        )


def _canonical(body: Any) -> bytes:
    return json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def _refuse(text: str) -> Any:
    raise Wrong(f"the number {text}")


def _checked_body(raw: bytes) -> dict[str, Any]:
    """The JSON inside, if it is what its checksum says."""
    try:
        outer = json.loads(raw, parse_constant=_refuse, object_pairs_hook=no_key_twice)
        if type(outer) is not dict or outer.keys() != {"crc32", "manifest"}:
            raise Wrong("JSON of another form")
        good = outer["crc32"] == zlib.crc32(_canonical(outer["manifest"]))
    except (ValueError, RecursionError) as error:
        raise Wrong(f"no JSON: {error}") from error
    if not good:
        raise Wrong("a checksum that is another than its text's")
    return _typed(outer["manifest"], dict, "manifest")


# --- from JSON to records: nothing is believed ---------------------------------------------------
def _typed(value: Any, kind: type, what: str) -> Any:
    if type(value) is not kind:
        raise Wrong(f"{what} is {str(value)[:60]!r}, no {kind.__name__}")
    return value


def _whole(value: Any, what: str) -> int:
    if not 0 <= _typed(value, int, what) <= LONGEST:
        raise Wrong(f"{what} is {value}")
    return value


def _numbers(value: Any, what: str) -> tuple[int, ...]:
    return tuple(_whole(number, what) for number in _typed(value, list, what))


def parse(body: dict[str, Any]) -> Manifest:
    """The manifest that was read from a file, if types are right and no number is out of bounds.

    Raises:
        Wrong: it is not.
    """
    fields = {"format", "step", "tensors", "files", "pieces", "extra", "per_rank"}
    if body.keys() != fields or body["format"] != FORMAT:
        raise Wrong(f"the format {body.get('format')!r}, the fields {sorted(body)}")
    tensors = _typed(body["tensors"], dict, "tensors")
    files = _typed(body["files"], dict, "files")
    for name in files:
        if not _FILE_NAME.fullmatch(name) or name == MANIFEST:
            raise Wrong(f"the file name {name!r}, which may lead elsewhere")
    return Manifest(
        _whole(body["step"], "step"),
        parsed := {name: _tensor(name, entry) for name, entry in tensors.items()},
        [_piece(entry, parsed) for entry in _typed(body["pieces"], list, "pieces")],
        {name: _whole(size, f"size of {name}") for name, size in files.items()},
        body["extra"],
        _typed(body["per_rank"], list, "per_rank"),
    )


def _tensor(name: str, entry: Any) -> TensorEntry:
    if len(_typed(entry, list, name)) != 2 or _typed(entry[1], str, name) not in DTYPES:
        raise Wrong(f"the tensor {name} is {entry}")
    shape = _numbers(entry[0], f"shape of {name}")
    if len(shape) > MOST_DIMS:
        raise Wrong(f"{name} has {len(shape)} dims")
    return TensorEntry(shape, entry[1])


def _piece(entry: Any, tensors: Mapping[str, TensorEntry]) -> StoredPiece:
    if len(_typed(entry, list, "piece")) != 7:
        raise Wrong(f"a piece of {len(entry)} fields")
    name, offsets, sizes, file, at, length, checksums = entry
    if type(name) is not str or name not in tensors:
        raise Wrong(f"a piece of {name!r}, a tensor that is not in the list")
    box = Box(_numbers(offsets, "offsets"), _numbers(sizes, "sizes"))
    return StoredPiece(
        name,
        box,
        _typed(file, str, "file"),
        _whole(at, "place in the file"),
        _whole(length, "length"),
        _numbers(checksums, "checksums"),
    )


def check_pieces(manifest: Manifest) -> None:
    """Every element of every tensor is in one piece, and a piece is as long as its box.

    Raises:
        Wrong: a length or a number of checksums does not fit.
        CheckpointError: the boxes do not cover the tensor.
    """
    for name, entry in manifest.tensors.items():
        pieces = manifest.by_tensor[name]
        check_cover(name, entry.shape, [piece.box for piece in pieces])
        for piece in pieces:
            blocks = -(-piece.length // BLOCK)
            if piece.length != piece.box.count * entry.item:
                raise Wrong(f"{piece.length} bytes for {piece.box} of {name}, {entry.dtype}")
            if piece.checksums is not None and len(piece.checksums) != blocks:
                raise Wrong(f"{len(piece.checksums)} checksums for {blocks} blocks of {name}")


def _check_files(manifest: Manifest) -> None:
    """Pieces fill the files that are listed, one right behind the other."""
    ends = dict.fromkeys(manifest.files, 0)
    for piece in sorted(manifest.pieces, key=lambda p: p.at):
        if ends.get(piece.file) != piece.at:
            raise Wrong(f"a piece of {piece.tensor} at byte {piece.at} of {piece.file!r}")
        ends[piece.file] = piece.at + piece.length
    for name, end in ends.items():
        if end != manifest.files[name]:
            raise Wrong(f"pieces up to byte {end} of {name}, of {manifest.files[name]}")
