"""Tensors in files: mapped into memory, checked when read, replaced as a whole when written.

Notebook: 05 Offload (nvme_store).
Paper: Rajbhandari et al., "ZeRO-Infinity: Breaking the GPU Memory Wall for Extreme Scale Deep
Learning" (2021), section 6.3.
Costs S bytes of disk traffic for a tensor of S bytes, and one pass over it for the checksum.
The production version (DeepNVMe) reads with O_DIRECT and io_uring or libaio into pinned buffers,
past the page cache, with many requests in flight; it keeps no checksum.

A file: one page of header (magic, then JSON with dtype, shape, bytes and checksum), then the data.
"""

from __future__ import annotations

import json
import math
import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from course_lib.trace import Refusal

MAGIC = b"COURSE05"
PAGE = 4096  # the data begin here, so that they are aligned for the disk and for any dtype
UNFINISHED = ".unfinished"  # ends the names of files that are being written
PREFIX = struct.Struct("<8sII")  # magic, length of the JSON, checksum of the JSON


class TornFile(Refusal, RuntimeError):
    """A file that is not what was written; `asked` names it."""


class NvmeStore:
    """A folder of tensors.

    One call begins a read or a write, another ends it. In between a thread carries them out, one
    after the other, in the order in which they were begun.

    Args:
        folder: made if it is not there; one for each rank.

    Attributes:
        read: bytes of tensors read so far.
        written: bytes of tensors written so far.
        user: who names the files, where that is one at a time.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        for left in self.folder.glob(f".*{UNFINISHED}"):  # by a process that was killed
            left.unlink()
        self.read = self.written = 0
        self.user: object = None
        self._thread = ThreadPoolExecutor(1, "nvme")

    def start_write(self, name: str, tensor: torch.Tensor) -> Future[None]:
        """Begins to write; the tensor must stay as it is until `result()`.

        The file appears under its name when it is complete and on the disk; until then, and after a
        crash, the old one is there.
        """
        path = self._path(name)
        self.written += tensor.nbytes
        return self._thread.submit(_write, path, tensor.detach())

    def start_read(self, name: str) -> Future[torch.Tensor]:
        """Begins to read; `result()` is the tensor, a copy of its own.

        Raises (in `result()`):
            TornFile: the file is not what `write` wrote.
            FileNotFoundError: there is none of this name.
        """
        future = self._thread.submit(_read, self._path(name))
        future.add_done_callback(self._count)
        return future

    def stream(self, names: Sequence[Any]) -> Iterator[tuple[Any, list[torch.Tensor]]]:
        """Yields the tensors of one item after another, while those of the next are being read.

        Args:
            names: each a file's name, or a list of names that are wanted together.
        """
        reads = [[]] if not names else [self._start(names[0])]
        for place, name in enumerate(names):
            here = [future.result() for future in reads.pop()]
            if place + 1 < len(names):
                reads.append(self._start(names[place + 1]))
            yield name, here

    def _start(self, names: Any) -> list[Future[torch.Tensor]]:
        return [self.start_read(n) for n in ([names] if isinstance(names, str) else names)]

    def _count(self, future: Future[torch.Tensor]) -> None:
        if not future.cancelled() and future.exception() is None:
            self.read += future.result().nbytes

    def _path(self, name: str) -> Path:
        if not name or "/" in name or name.startswith("."):
            raise Refusal(
                f"a file for {name!r}",
                "no name of a file in a folder",
                "a store is one folder, and names with a dot in front are its unfinished files",
            )
        return self.folder / name

    def close(self) -> None:
        """Ends the thread, after what has been begun."""
        self._thread.shutdown()

    def __enter__(self) -> NvmeStore:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()


# --- one file ------------------------------------------------------------------------------------
def _bytes(tensor: torch.Tensor) -> memoryview:
    flat = tensor.detach().cpu().contiguous().view(-1).view(torch.uint8)
    return memoryview(flat.numpy())  # type: ignore[arg-type]


def _write(path: Path, tensor: torch.Tensor) -> None:
    data = _bytes(tensor)
    about = {
        "name": path.name,
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "shape": list(tensor.shape),
        "bytes": len(data),
        "checksum": zlib.crc32(data),
    }
    text = json.dumps(about).encode()
    header = PREFIX.pack(MAGIC, len(text), zlib.crc32(text)) + text
    unfinished = path.with_name(f".{path.name}{UNFINISHED}")
    with unfinished.open("wb") as file:
        file.write(header.ljust(PAGE, b"\0"))
        file.write(data)
        file.flush()
        os.fsync(file.fileno())  # before the name points here, or a power cut leaves a torn file
    os.replace(unfinished, path)


def _read(path: Path) -> torch.Tensor:
    about = _header(path)
    size = os.stat(path).st_size
    if size != PAGE + about["bytes"]:
        raise TornFile(
            f"read {path.name}", f"{size:,} bytes", f"its header promises {PAGE + about['bytes']:,}"
        )
    tensor = torch.empty(about["shape"], dtype=getattr(torch, about["dtype"]))
    if tensor.numel():
        mapped = torch.from_file(str(path), shared=False, size=size, dtype=torch.uint8)
        tensor.view(-1).view(torch.uint8).copy_(mapped[PAGE:])
    checksum = zlib.crc32(_bytes(tensor))
    if checksum != about["checksum"]:
        raise TornFile(
            f"read {path.name}",
            f"data with the checksum {checksum:08x}",
            f"written were data with {about['checksum']:08x}: a part of them is older or damaged",
        )
    return tensor


def _header(path: Path) -> dict[str, Any]:
    """What the file's header says, if it is complete and valid."""
    with path.open("rb") as file:
        page = file.read(PAGE)
    if len(page) < PAGE:
        raise TornFile(
            f"read {path.name}", f"{len(page):,} bytes", f"a header alone has {PAGE:,}: cut short"
        )
    magic, length, checksum = PREFIX.unpack_from(page)
    text = page[PREFIX.size : PREFIX.size + length]
    if magic != MAGIC or zlib.crc32(text) != checksum or any(page[PREFIX.size + length :]):
        raise TornFile(
            f"read {path.name}",
            "a header that is damaged",
            "not written by this store, or not whole",
        )
    about: dict[str, Any] = json.loads(text)
    count = math.prod(about["shape"]) * getattr(torch, about["dtype"]).itemsize
    if about["name"] != path.name or count != about["bytes"]:
        raise TornFile(
            f"read {path.name}", f"the file of {about['name']!r}", "it was renamed, or copied over"
        )
    return about
