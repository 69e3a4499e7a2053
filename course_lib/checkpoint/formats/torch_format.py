"""Reads what torch.distributed.checkpoint saves: its index is a pickle, of which nothing is run.

Notebook: 11 Distributed checkpoint (interchange).
Source: torch.distributed.checkpoint, files metadata.py and filesystem.py (version 2.13); the zip
form of torch.save.
Costs: the index, and the directory of each tensor's zip; then as any other checkpoint.
The production version unpickles the index, so that whoever made it may run code here.

A pickle is a small program that may call any function by its name. Here it finds, under the names
that such an index needs, only classes that keep what they are given; any other name is an error.
Values are kept small as well: a tuple of tuples of tuples, each twice in the next, is a short file
that takes longer than a life to hash or to print. The tensors are not unpickled at all: torch.save
puts their bytes into a zip without compressing, so what is needed is the place where they begin.
"""

from __future__ import annotations

import dataclasses
import io
import math
import pickle
import struct
import zipfile
from functools import partial
from pathlib import Path
from typing import IO, Any, ClassVar

from course_lib.checkpoint.boxes import Box
from course_lib.checkpoint.errors import CheckpointError
from course_lib.checkpoint.files.distrust import (
    LONGEST,
    MOST_DIMS,
    Wrong,
    index_bytes,
    open_ordinary,
)
from course_lib.checkpoint.files.manifest import DTYPES, FORMAT, Manifest, check_pieces, parse
from course_lib.checkpoint.load import Checkpoint

INDEX = ".metadata"
LONGEST_PICKLE = 1 << 16  # bytes that describe one tensor
_HOME = "torch.distributed.checkpoint"


class _Record:
    """Keeps what a pickle gives to a class or a function, and does nothing with it."""

    args: tuple[Any, ...] = ()
    state: Any = None

    def __init__(self, *args: Any) -> None:
        self.args = args

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __getitem__(self, key: str) -> Any:
        if type(self.state) is not dict or key not in self.state:
            raise Wrong(f"a {type(self).__name__} without {key}")
        return self.state[key]


_KNOWN: dict[tuple[str, str], Any] = {
    (module, name): type(name, (_Record,), {})
    for module, names in {
        f"{_HOME}.metadata": (
            "Metadata", "MetadataIndex", "StorageMeta", "TensorStorageMetadata",
            "ChunkStorageMetadata", "BytesStorageMetadata", "TensorProperties",
            "_MEM_FORMAT_ENCODING",
        ),
        f"{_HOME}.filesystem": ("_StorageInfo",),
        "torch.serialization": ("_get_layout",),
        "torch._utils": ("_rebuild_tensor_v2",),
        "torch": ("Size",),
        "pathlib": ("PosixPath", "PurePosixPath", "WindowsPath"),
        "pathlib._local": ("PosixPath", "PurePosixPath", "WindowsPath"),  # the same in Python 3.13
        "collections": ("OrderedDict",),
    }.items()
    for name in names
}  # fmt: skip
_KNOWN |= {("torch", name): name for name in DTYPES}


# What such pickles are made of; others make room for as many bytes as they say will follow.
_WORDS = [
    getattr(pickle, name)[0]
    for name in (
        "PROTO", "FRAME", "STOP", "MARK", "MEMOIZE", "BINPUT", "LONG_BINPUT", "BINGET",
        "LONG_BINGET", "NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "LONG1",
        "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE", "EMPTY_TUPLE", "EMPTY_LIST", "APPEND",
        "APPENDS", "EMPTY_DICT", "SETITEM", "SETITEMS", "GLOBAL", "STACK_GLOBAL", "REDUCE",
        "NEWOBJ", "BUILD", "BINPERSID",
    )
]  # fmt: skip
_TUPLES = [pickle.TUPLE[0], pickle.TUPLE1[0], pickle.TUPLE2[0], pickle.TUPLE3[0]]


def _small_tuple(code: int, unpickler: Any) -> None:
    """Makes a tuple as usual, and refuses one that would take long to hash."""
    pickle._Unpickler.dispatch[code](unpickler)
    made = unpickler.stack[-1]
    inner = [item for part in made[:MOST_DIMS] if type(part) is tuple for item in part]
    if len(made) > MOST_DIMS or tuple in map(type, inner):
        raise Wrong("a tuple that is too long or too deep")


class _Unpickler(pickle._Unpickler):
    """Knows few words. In C it would make room for as many values as a pickle says."""

    dispatch: ClassVar = {code: pickle._Unpickler.dispatch[code] for code in _WORDS}
    dispatch |= {code: partial(_small_tuple, code) for code in _TUPLES}

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch" and name.endswith("Storage"):
            return _Record
        if (module, name) not in _KNOWN:
            raise Wrong(f"a pickle that asks for {module}.{name}")
        return _KNOWN[module, name]

    def persistent_load(self, pid: Any) -> Any:
        return pid


def open_torch_checkpoint(folder: Path | str) -> Checkpoint:
    """A checkpoint of `dcp.save`, to fill the pieces of any layout from with its `read`.

    Only its tensors are there: what torch has pickled otherwise is left where it is.

    Args:
        folder: that it was saved to. A nested state is found under names joined by dots, so that
            of `{"model": model.state_dict()}` is named as `model_pieces` does. What
            `get_optimizer_state_dict` gives is named as `optimizer_pieces` does, under whatever
            name it was saved.

    Raises:
        CheckpointError: it names the file that cannot be read or trusted, and says why.
    """
    folder = Path(folder)
    path = folder / INDEX
    try:
        index = _unpickle(index_bytes(path))
        entries = _typed(index["state_dict_metadata"], dict)
        names = _our_names([_typed(name, str) for name in entries])
        tensors, listed = _tensors(entries, names)
        pieces = []
        for key, info in _typed(index["storage_data"], dict).items():
            torchs, offset = _index_of(key)
            name = names.get(torchs, torchs)
            if name in tensors:
                path = folder / _file_of(info)
                place = (name, offset)
                pieces.append(_locate(path, info, name, listed.pop(place, None), offset))
        path = folder / INDEX
        if listed:
            raise Wrong(f"no file for {sorted(listed)[0]}")
        return Checkpoint(folder, _manifest(folder, tensors, pieces))
    except (OSError, Wrong, CheckpointError, *_BROKEN) as error:
        raise CheckpointError(
            f"read {path}",
            f"{type(error).__name__}: {error}",
            "it is damaged, or not as torch.distributed.checkpoint saves contiguous tensors",
        ) from error


# What the readers of pickles and zips raise if the bytes are no such thing.
_BROKEN = (
    pickle.UnpicklingError, zipfile.BadZipFile, EOFError, KeyError, IndexError, ValueError,
    TypeError, AttributeError, RecursionError, NotImplementedError, struct.error, MemoryError,
    OverflowError,
)  # fmt: skip


def _unpickle(raw: bytes) -> Any:
    found = _Unpickler(io.BytesIO(raw)).load()
    if not isinstance(found, _Record):
        raise Wrong(f"a pickle of a {type(found).__name__}")
    return found


def _typed(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise Wrong(f"a {type(value).__name__} where a {kind.__name__} should be")
    return value


def _our_names(names: list[str]) -> dict[str, str]:
    """`optimizer.NAME.exp_avg` for `KEY.state.NAME.exp_avg`, if `KEY.param_groups` is there too."""
    mark = ".param_groups"
    ours = {name: name for name in names}
    for key in {name[: name.index(mark)] for name in names if mark in name}:
        states = [name for name in names if name.startswith(f"{key}.state.")]
        ours |= {n: f"optimizer.{n.removeprefix(f'{key}.state.')}" for n in states}
    if len(set(ours.values())) < len(ours):
        raise Wrong("two optimizers' states of one parameter")
    return ours


def _tensors(
    entries: Any, names: dict[str, str]
) -> tuple[dict[str, Any], dict[tuple[str, Any], Box]]:
    """Shape and dtype of each tensor, and the boxes it is stored in by name and offsets."""
    tensors: dict[str, Any] = {}
    boxes: dict[tuple[str, Any], Box] = {}
    for torchs, entry in entries.items():
        if type(entry).__name__ != "TensorStorageMetadata":
            continue
        dtype = _typed(_typed(entry["properties"].state, tuple)[0], str)
        name = names[torchs]
        tensors[name] = [list(_sizes(entry["size"])), dtype]
        for chunk in _typed(entry["chunks"], list):
            offsets = _sizes(chunk["offsets"])
            boxes[name, offsets] = Box(offsets, _sizes(chunk["sizes"]))
    return tensors, boxes


def _sizes(value: Any) -> tuple[int, ...]:
    """A tuple of whole numbers, or the `torch.Size` of one."""
    if isinstance(value, _KNOWN["torch", "Size"]):
        (value,) = value.args
    for number in _typed(value, tuple):
        if not 0 <= _typed(number, int) <= LONGEST:
            raise Wrong("a size that no tensor has")
    return value


def _index_of(key: Any) -> tuple[str, Any]:
    offset = key.state.get("offset")  # what is no tensor has none
    return _typed(key["fqn"], str), None if offset is None else _sizes(offset)


def _file_of(info: Any) -> str:
    name = _typed(info["relative_path"], str)
    if "/" in name or "\\" in name or name.startswith(".."):
        raise Wrong(f"the file name {name!r}, which may lead elsewhere")
    return name


def _locate(path: Path, info: Any, name: str, box: Box | None, offset: Any) -> list[Any]:
    """One stored box, as a manifest has it: where its bytes begin, and how many they are."""
    if box is None or "transform_descriptors" in info.state:
        raise Wrong(f"{name} at {offset}, which is not in the list or is compressed")
    with open(open_ordinary(path), "rb") as file:
        window = _Window(file, _typed(info["offset"], int), _typed(info["length"], int))
        with zipfile.ZipFile(window) as archive:
            entries = {entry.filename.partition("/")[2]: entry for entry in archive.infolist()}
            about, data = entries["data.pkl"], entries.get("data/0")
            order = entries.get("byteorder")
            small = [entry for entry in (about, order) if entry]
            stored = {e.compress_type for e in (*small, data) if e} == {zipfile.ZIP_STORED}
            short = max(entry.file_size for entry in small) <= LONGEST_PICKLE
            if not stored or not short or (order and archive.read(order) != b"little"):
                raise Wrong(f"{name} in a zip that torch.save would not make here")
            _check_contiguous(_unpickle(archive.read(about)), box, name)
        if data is None:
            raise Wrong(f"no bytes for {name}")
        window.seek(data.header_offset + 26)
        lengths = struct.unpack("<HH", window.read(4))  # of the name and of the padding behind it
    at = info["offset"] + data.header_offset + 30 + sum(lengths)
    return [name, list(box.offsets), list(box.sizes), path.name, at, data.file_size, []]


def _check_contiguous(tensor: Any, box: Box, name: str) -> None:
    """Refuses a tensor whose bytes are not in the order of its elements."""
    _, start, sizes, strides = tensor.args[:4]
    sizes, strides = _sizes(sizes), _sizes(strides)
    expected = [math.prod(box.sizes[dim + 1 :]) for dim in range(len(box.sizes))]
    same = all(s == e for n, s, e in zip(box.sizes, strides, expected, strict=True) if n > 1)
    if type(tensor).__name__ != "_rebuild_tensor_v2" or start or sizes != box.sizes or not same:
        raise Wrong(f"{name} of sizes {sizes} and strides {strides} for {box}")


def _manifest(folder: Path, tensors: dict[str, Any], pieces: list[Any]) -> Manifest:
    names = {piece[3] for piece in pieces}
    sizes = {name: (folder / name).stat().st_size for name in names}
    manifest = parse({"format": FORMAT, "step": 0, "tensors": tensors, "files": sizes,
                      "pieces": pieces, "extra": None, "per_rank": []})  # fmt: skip
    plain = [dataclasses.replace(p, checksums=None) for p in manifest.pieces if p.length]
    manifest = dataclasses.replace(manifest, pieces=plain)
    check_pieces(manifest)
    for piece in plain:
        if piece.at + piece.length > sizes[piece.file]:
            raise Wrong(f"{piece.tensor} up to byte {piece.at + piece.length} of {piece.file}")
    return manifest


class _Window(io.RawIOBase):
    """A stretch of a file as a file of its own: several zips lie in one."""

    def __init__(self, file: IO[bytes], start: int, length: int) -> None:
        self._file, self._start, self._length, self._at = file, start, length, 0

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._length}[whence]
        if base + offset < 0:
            raise ValueError(f"byte {base + offset}")
        self._at = base + offset
        return self._at

    def read(self, count: int = -1) -> bytes:
        left = max(0, self._length - self._at)
        self._file.seek(self._start + self._at)
        data = self._file.read(left if count is None or count < 0 else min(count, left))
        self._at += len(data)
        return data
