"""The safetensors format by hand: a length, a JSON header, then each tensor's bytes.

Notebook: 11 Distributed checkpoint (what a model is handed over as).
Source: the format's description in the README of huggingface/safetensors.
Costs: an export reads and writes the whole model once, and holds its largest tensor.
The production version maps the file, so that a load copies nothing until it is used.

    8 bytes: N, least significant first
    N bytes: {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...}
    the data, without gaps; offsets count from its first byte
"""

from __future__ import annotations

import json
import os
import secrets
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from course_lib.checkpoint.boxes import Box
from course_lib.checkpoint.errors import CheckpointError
from course_lib.checkpoint.files.distrust import (
    LONGEST,
    MOST_DIMS,
    no_key_twice,
    open_ordinary,
)
from course_lib.checkpoint.files.manifest import DTYPES, Manifest, StoredPiece, TensorEntry
from course_lib.checkpoint.files.store import sync_folder
from course_lib.checkpoint.files.write import raw_bytes
from course_lib.checkpoint.load import Checkpoint
from course_lib.checkpoint.plan import Piece

NAMES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "int64": "I64", "int32": "I32",
    "int16": "I16", "int8": "I8", "uint8": "U8", "bool": "BOOL", "complex64": "C64",
}  # fmt: skip
LONGEST_HEADER = 100_000_000  # bytes, the format's own limit
METADATA = "__metadata__"


def export_safetensors(
    checkpoint: Checkpoint,
    path: Path | str,
    *,
    prefix: str = "model.",
    rename: Callable[[str], str] = str,
) -> None:
    """Writes the whole tensors of a sharded checkpoint as one file, on one process.

    Args:
        checkpoint: of any layout.
        path: of the file, which appears when it is complete.
        prefix: tensors whose names begin so are exported, without it.
        rename: gives each its name in the file, from that without the prefix.

    Raises:
        CheckpointError: nothing to export, a dtype that the format does not have, two tensors of
            one name, or a damaged file.
    """
    tensors = checkpoint.manifest.tensors
    names = sorted(name for name in tensors if name.startswith(prefix))
    wrong = [tensors[name].dtype for name in names if tensors[name].dtype not in NAMES]
    if not names or wrong:
        raise CheckpointError(
            f"export {prefix}* of {checkpoint.folder} to {path}",
            f"{len(names)} such tensors, {len(wrong)} of them of {wrong[:1]}",
            "there is something to export, and safetensors has a name for its dtype",
        )
    renamed = {name: rename(name.removeprefix(prefix)) for name in names}
    if len({METADATA, *renamed.values()}) <= len(names):
        raise CheckpointError(
            f"export {prefix}* of {checkpoint.folder} to {path}",
            f"{len(names)} tensors, {len(set(renamed.values()))} names for them",
            f"each has a name of its own, and {METADATA} is the header's",
        )
    path = Path(path)
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with open(unfinished, "xb") as file:
            file.write(_header({renamed[name]: tensors[name] for name in names}))
            for name in names:
                file.write(raw_bytes(_whole(checkpoint, name)))
            file.flush()
            os.fsync(file.fileno())
        unfinished.rename(path)
    finally:
        unfinished.unlink(missing_ok=True)
    sync_folder(path.parent)


def _whole(checkpoint: Checkpoint, name: str) -> torch.Tensor:
    entry = checkpoint.manifest.tensors[name]
    whole = torch.empty(entry.shape, dtype=DTYPES[entry.dtype])
    checkpoint.read([Piece(name, entry.shape, Box.whole(entry.shape), whole)])
    return whole


def _header(tensors: Mapping[str, TensorEntry]) -> bytes:
    header: dict[str, Any] = {METADATA: {"format": "pt"}}
    at = 0
    for name, entry in tensors.items():
        end = at + Box.whole(entry.shape).count * entry.item
        header[name] = {
            "dtype": NAMES[entry.dtype],
            "shape": list(entry.shape),
            "data_offsets": [at, end],
        }
        at = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # data that begins at a multiple of 8 can be mapped
    return struct.pack("<Q", len(text)) + text


def open_safetensors(path: Path | str, *, prefix: str = "model.") -> Checkpoint:
    """A file as a checkpoint, to fill the pieces of any layout from with its `read`.

    The format has no checksums: a wrong size is found, a changed number is not.

    Args:
        path: of the file.
        prefix: put before each name.

    Raises:
        CheckpointError: it names the file, and says what is wrong with it.
    """
    path = Path(path)
    try:
        with open(open_ordinary(path.resolve()), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            start, header = _read_header(file.read(8), file, size)
        spans = {n: _span(n, entry, size - start) for n, entry in header.items() if n != METADATA}
        _check_no_gaps([span for _, span in spans.values()], size - start)
    except (OSError, ValueError, RecursionError, struct.error) as error:
        raise CheckpointError(
            f"read {path}", str(error), "it is no whole safetensors file"
        ) from error
    tensors = {prefix + name: entry for name, (entry, _) in spans.items()}
    real = path.resolve()  # a file that the caller names may be a link
    pieces = [
        StoredPiece(prefix + n, Box.whole(e.shape), real.name, start + s.start, len(s), None)
        for n, (e, s) in spans.items()
        if len(s)
    ]
    return Checkpoint(real.parent, Manifest(0, tensors, pieces, {real.name: size}))


def _read_header(first: bytes, file: Any, size: int) -> tuple[int, dict[str, Any]]:
    """Where the data begins, and what the header says."""
    (length,) = struct.unpack("<Q", first)
    if not 2 <= length <= min(LONGEST_HEADER, size - 8):
        raise ValueError(f"a header of {length} bytes in a file of {size}")
    header = json.loads(file.read(length), object_pairs_hook=no_key_twice)
    if type(header) is not dict:
        raise ValueError("a header that is no JSON object")
    return 8 + length, header


def _span(name: str, entry: Any, size: int) -> tuple[TensorEntry, range]:
    """A tensor's shape and dtype, and its bytes."""
    kinds = {code: dtype for dtype, code in NAMES.items()}
    if type(entry) is not dict or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"{name} has not just dtype, shape and data_offsets")
    if str(entry["dtype"]) not in kinds:
        raise ValueError(f"{name} is of the dtype {str(entry['dtype'])[:20]!r}")
    shape, offsets = _sizes(name, entry["shape"]), _sizes(name, entry["data_offsets"])
    found = TensorEntry(shape, kinds[str(entry["dtype"])])
    needed = Box.whole(shape).count * found.item
    if len(offsets) != 2 or offsets[1] - offsets[0] != needed or offsets[1] > size:
        raise ValueError(f"{name} needs {needed} bytes and has {offsets} of {size}")
    return found, range(*offsets)


def _sizes(name: str, value: Any) -> tuple[int, ...]:
    good = type(value) is list and len(value) <= MOST_DIMS
    if not good or any(type(n) is not int or not 0 <= n <= LONGEST for n in value):
        raise ValueError(f"{name} has {str(value)[:40]} where sizes should be")
    return tuple(value)


def _check_no_gaps(spans: Sequence[range], size: int) -> None:
    """Bytes that belong to no tensor, or to two, could hide something else."""
    end = 0
    for span in sorted(spans, key=lambda span: (span.start, span.stop)):
        if span.start != end:
            raise ValueError(f"a tensor at byte {span.start} of the data, where {end} was expected")
        end = span.stop
    if end != size:
        raise ValueError(f"{size} bytes of data for tensors of {end}")
