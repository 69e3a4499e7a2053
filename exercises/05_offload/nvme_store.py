"""Optimizer state on the disk: written so that a crash cannot tear it, read ahead of its use.

Notebook 05. The state of a large model does not even fit into the host's memory, but a solid-state
disk has room for terabytes of it. In each step it is read, used and written back, tensor by tensor.
Two things must be right. A process can die while it writes: what is read later must then be the
old tensor or the new one, never a mixture, and if the disk lost something all the same, the read
must say so. And the disk is slow: while one tensor is used, the next must already be on its way.

Each tensor has one file in `folder`, named after it. How the file looks inside is up to you, as
long as it has a header that says what follows (dtype, shape, bytes) and a checksum of *all* its
bytes but the checksum itself. `torch.save` and pickle do not count.

Rules:

- `write` puts a tensor into a file whose name it has, and comes back when it is safe: it writes to
  another name in the same folder, calls `os.fsync`, and then `os.replace`s the one by the other, so
  that the name always stands for a whole file. A name may be written again.
- `read` returns a new tensor: same bits, dtype and shape as was written; writing into it does not
  change the file. If anything about the file is not as it was written (cut short, longer, one bit
  changed anywhere, another tensor's file under this name), it raises `TornFile`, with the name of
  the tensor in the message. A name that was never written is a `FileNotFoundError`.
- `stream` is a generator over pairs (name, tensor), in the order of the names. Files are read by
  another thread: `read = executor.submit(function, *arguments)` starts a call there and returns at
  once, and `read.result()` waits for what it returns. When a pair is given out, the read of the
  next one has been started, and no more than that one. If the loop is left early, nothing
  is left to wait for: the read that is under way must have ended when the generator is closed.

All dtypes of torch up to 8 bytes an element work, scalars and empty tensors too, tensors that are
not contiguous and such that need a gradient. A memory-mapped file (`torch.from_file`,
`numpy.memmap`, `mmap`) saves one copy; ordinary reads are all right.

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
        folder: exists, and may hold files of an earlier run.
        executor: runs the reads of `stream`.
    """

    def __init__(self, folder: str, executor: Executor) -> None:
        self.folder = Path(folder)
        self.executor = executor

    def write(self, name: str, tensor: torch.Tensor) -> None:
        """Writes a tensor under its name, or replaces it; all of it or nothing."""
        raise NotImplementedError("nvme_store: write")

    def read(self, name: str) -> torch.Tensor:
        """The tensor that was written under this name.

        Raises:
            TornFile: the file is not as it was written.
            FileNotFoundError: nothing was written under this name.
        """
        raise NotImplementedError("nvme_store: read")

    def stream(self, names: Sequence[str]) -> Iterator[tuple[str, torch.Tensor]]:
        """Yields the tensors in turn, each with its name, while the next one is being read."""
        raise NotImplementedError("nvme_store: stream")
