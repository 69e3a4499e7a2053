"""What a run writes while it goes on: a line of JSON for each step, curves for TensorBoard.

Notebook: 13 3D parallelism.
Source: JSON Lines (jsonlines.org); TensorBoard's event files through torch.utils.tensorboard.
Costs a line of text and a flush a step, on one rank.
The production version (Weights & Biases, MLflow) sends them to a server.
"""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any, Protocol

from course_lib.trace.readers.steps import read_steps


class Log(Protocol):
    """Takes the numbers of a step."""

    def add(self, row: dict[str, Any]) -> None:
        """Numbers by name; `step` counts from 1."""

    def close(self) -> None:
        """Nothing more will come."""


class JsonLines:
    """A file with one JSON object for each step; what is there up to step `after` stays.

    A run that is resumed repeats the steps since the checkpoint: their old lines are removed.

    Args:
        path: of the file.
        after: the last step whose line stays.

    Attributes:
        cut: how many lines were removed.
    """

    def __init__(self, path: Path, after: int) -> None:
        there = read_steps(path)
        kept = [row for row in there if row["step"] <= after]
        self.cut = len(there) - len(kept)
        lines = "".join(f"{json.dumps(row)}\n" for row in kept)
        beside = path.with_suffix(".new")
        beside.write_text(lines)
        beside.replace(path)  # there is never half a file
        self._file = path.open("a")

    def add(self, row: dict[str, Any]) -> None:
        """Writes a line, which is on its way to the disk when this returns.

        Raises:
            OSError: the disk is full, or the file is not there any more.
        """
        if os.fstat(self._file.fileno()).st_nlink == 0:  # what is written would go nowhere
            raise FileNotFoundError(errno.ENOENT, "the file was removed while the run wrote it")
        self._file.write(f"{json.dumps(row)}\n")
        self._file.flush()

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


class TensorBoard:
    """The same numbers as curves, in an event file.

    Args:
        folder: for the file.
        after: the last step that is not made again.

    Raises:
        ImportError: the package tensorboard is not installed.
    """

    def __init__(self, folder: Path, after: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer: Any = SummaryWriter(str(folder), purge_step=after + 1)

    def add(self, row: dict[str, Any]) -> None:
        """One point for each number."""
        for name, value in row.items():
            if name != "step":
                self._writer.add_scalar(name, float(value), row["step"])
        self._writer.flush()

    def close(self) -> None:
        """Closes the file."""
        self._writer.close()
