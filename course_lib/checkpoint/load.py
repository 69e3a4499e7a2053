"""Loading into any layout: each rank reads the bytes that its own boxes meet, and nothing else.

Notebook: 11 Distributed checkpoint (load_resharded).
Source: torch.distributed.checkpoint's load, which resharding by intersection follows.
Costs S/N bytes from each rank's disk and a block of memory; nothing is sent but two short texts.
The production version lets one replica read and broadcast to the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from course_lib.checkpoint.agree import together
from course_lib.checkpoint.errors import CheckpointError
from course_lib.checkpoint.files.manifest import Manifest, read_manifest
from course_lib.checkpoint.files.read import Reader
from course_lib.checkpoint.files.store import complete_steps, latest
from course_lib.checkpoint.plan import Piece
from course_lib.comm import Group


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint, whose manifest has been checked.

    Attributes:
        folder: where it is.
        manifest: what it holds: step, extra, per_rank, and the names and shapes of all tensors.
    """

    folder: Path
    manifest: Manifest

    def check(self, wanted: Sequence[Piece]) -> None:
        """Refuses pieces that the checkpoint does not have; reads nothing.

        Raises:
            CheckpointError: a name is missing or is of another shape or dtype.
        """
        Reader(self.folder, self.manifest).check(wanted)

    def read(self, wanted: Sequence[Piece]) -> int:
        """Fills the tensors of `wanted`, and returns the bytes read; not collective.

        Raises:
            CheckpointError: a name is missing or is of another shape or dtype (no tensor has
                been changed then), or a file is damaged (some have).
        """
        with Reader(self.folder, self.manifest) as reader:
            reader.check(wanted)
            for piece in wanted:
                reader.fill(piece)
            return reader.bytes_read


def find_checkpoint(folder: Path | str, step: int | None = None) -> Checkpoint:
    """The checkpoint of a step, or the newest complete one; not collective.

    Raises:
        CheckpointError: there is none, or its manifest or a file is damaged.
    """
    steps = complete_steps(folder)
    if step is not None and step not in steps:
        raise CheckpointError(
            f"load step {step} from {folder}",
            f"{len(steps)} complete checkpoints: {', '.join(map(str, steps)) or 'none'}",
            "this step was never saved to its end, or was removed for newer ones",
        )
    path = latest(folder) if step is None else steps[step]
    manifest = read_manifest(path)
    if manifest.step not in steps or steps[manifest.step] != path:
        raise CheckpointError(
            f"load {path}",
            f"a manifest of step {manifest.step}",
            "the folder was renamed or copied",
        )
    return Checkpoint(path, manifest)


def open_checkpoint(folder: Path | str, group: Group, step: int | None = None) -> Checkpoint:
    """The same checkpoint on every rank, though a newer one may appear meanwhile; collective.

    Args:
        folder: of all checkpoints.
        group: the ranks that will load.
        step: which; None for the newest.

    Raises:
        CheckpointError: the same on every rank: there is none, or it is damaged.
    """
    asked = f"open a checkpoint in {folder}"
    if step is None:
        first = group.index == 0
        found = together(
            asked, lambda: find_checkpoint(folder).manifest.step if first else None, group
        )
        step = found[0]
    checkpoints = []
    together(asked, lambda: checkpoints.append(find_checkpoint(folder, step)), group)
    return checkpoints[0]


def load_resharded(
    wanted: Sequence[Piece], folder: Path | str, group: Group, *, step: int | None = None
) -> Checkpoint:
    """Fills this rank's tensors from a checkpoint of whatever layout; collective.

    Args:
        wanted: what this rank is to have; nothing that it does not name is read.
        folder: of all checkpoints.
        group: the ranks that load.
        step: which; None for the newest.

    Returns:
        The checkpoint, for the step and the extra JSON in its manifest.

    Raises:
        CheckpointError: the same on every rank: no checkpoint, a tensor that is missing or is of
            another shape or dtype, or a damaged file, by its name.
    """
    checkpoint = open_checkpoint(folder, group, step)
    asked = f"load {checkpoint.folder}"
    together(asked, lambda: checkpoint.read(wanted), group)
    return checkpoint
