"""Optimizer state on disk: written so that a crash cannot tear it, and read ahead of its use.

Notebook 05. The state of a large model may not even fit into the host's memory, but a solid-state
disk has room for terabytes. In each step the state is read, used and written back, tensor by
tensor. Two things must be right. A process can die while it writes: a later read must then return
the old tensor or the new one, never a mixture, and if the disk has lost something in spite of that,
the read must report it. And the disk is slow: while one tensor is used, the next must already be
under way.

Each tensor has one file in `folder`, with the tensor's name as its file name. The format is up to
you, as long as the file has a header with dtype, shape and number of bytes, and a checksum of *all*
its bytes except the checksum itself. Do not use `torch.save` or pickle.

Rules:

- `write` writes a tensor to its file, and returns when the name stands for the new tensor: it
  writes to another name in the same folder, calls `os.fsync`, and then puts that file in the place
  of the old one with `os.replace`, so that the name always stands for a complete file. No other
  files are left in the folder. A name may be written again. No tensor's name ends in `.new`, so the
  other name may.
- `read` returns a new tensor with the bits, dtype and shape that were written; writing into it does
  not change the file. If the file is not exactly as it was written (cut short, longer, one bit
  changed anywhere, another tensor's file under this name), it raises `TornFile` with the tensor's
  name in the message. If nothing was ever written under the name, it raises `FileNotFoundError`.
- `stream` is a generator of pairs (name, tensor), in the order of the names. Another thread reads
  the files: `read = executor.submit(function, *arguments)` starts a call there and returns at once,
  and `read.result()` waits for its return value. When a pair is yielded, the read of the next one
  has been started, and no other. However the loop ends, no read may go on in the background: when
  the generator is closed, or when a read has raised, the read that was under way must have ended.

Tensors may have any floating, complex, integer or bool dtype of up to 8 bytes per element (neither
quantized nor lazily conjugated). They may be scalars, empty or non-contiguous, and may require
gradients. A memory-mapped file (`torch.from_file`, `numpy.memmap`, `mmap`) saves one copy, but
ordinary reads are fine.

Your answer may use nothing of `course_lib`.
"""

import json
import os
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from pathlib import Path

import torch


class TornFile(RuntimeError):
    """A file that is not as it was written; the message names the tensor."""


class NvmeStore:
    """A folder of tensors.

    Args:
        folder: an existing folder, which may hold files of an earlier run.
        executor: runs the reads of `stream`; it belongs to the caller, who may use it afterwards.
    """

    def __init__(self, folder: str, executor: Executor) -> None:
        self.folder = Path(folder)
        self.executor = executor

    def write(self, name: str, tensor: torch.Tensor) -> None:
        """Writes a tensor under its name, or replaces the old one: completely or not at all."""
        raise NotImplementedError("nvme_store: write")

    def read(self, name: str) -> torch.Tensor:
        """Returns the tensor that was written under this name.

        Raises:
            TornFile: the file is not as it was written.
            FileNotFoundError: nothing was written under this name.
        """
        raise NotImplementedError("nvme_store: read")

    def stream(self, names: Sequence[str]) -> Iterator[tuple[str, torch.Tensor]]:
        """Yields each name with its tensor, in order, while the next one is being read."""
        raise NotImplementedError("nvme_store: stream")
