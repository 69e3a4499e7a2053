"""The folder of checkpoints: unfinished ones have another name than complete ones.

Notebook: 11 Distributed checkpoint (save_sharded: torn save accepted).
Source: POSIX rename(2), which other processes see either before or after, and fsync(2).
Costs two fsyncs of a folder for each checkpoint.
The production version writes to object stores, where one upload is atomic and a rename is not.

    folder/step-00000010/                 complete, since it has this name
    folder/step-00000020.tmp-5f0c91d2/    being written, or left by a job that died
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
from pathlib import Path

from course_lib.checkpoint.errors import CheckpointError
from course_lib.checkpoint.files.distrust import LONGEST
from course_lib.checkpoint.files.manifest import MANIFEST

_COMPLETE = re.compile(r"step-([0-9]{8,19})")
_UNFINISHED = re.compile(r"step-[0-9]{8,19}\.tmp-.*")


def complete_steps(folder: Path | str) -> dict[int, Path]:
    """The complete checkpoints in `folder` by step, oldest first; none if there is no folder."""
    folder = Path(folder)
    names = [p for p in folder.iterdir() if (p / MANIFEST).exists()] if folder.is_dir() else []
    found = {int(m[1]): p for p in names if (m := _COMPLETE.fullmatch(p.name))}
    return dict(sorted(found.items()))


def latest(folder: Path | str) -> Path:
    """The newest complete checkpoint.

    Raises:
        CheckpointError: there is none.
    """
    steps = complete_steps(folder)
    if not steps:
        raise CheckpointError(
            f"the newest checkpoint in {folder}",
            "none that is complete",
            "no save has ended there yet; those that were interrupted do not count",
        )
    return steps[max(steps)]


def begin(folder: Path | str, step: int) -> Path:
    """An empty folder to write the checkpoint of `step` into; what was left unfinished goes.

    Raises:
        CheckpointError: the step has been saved, is no whole number from 0 on, or is too large to
            be read again.
    """
    folder = Path(folder)
    possible = type(step) is int and 0 <= step <= LONGEST
    if not possible or step in complete_steps(folder):
        raise CheckpointError(
            f"save step {step} in {folder}",
            "it is there already" if possible else f"no whole number from 0 to {LONGEST}",
            "a complete checkpoint is never written to: remove it first, or save a later step",
        )
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        if _UNFINISHED.fullmatch(path.name):
            shutil.rmtree(path)
    unfinished = folder / f"step-{step:08}.tmp-{secrets.token_hex(4)}"
    unfinished.mkdir()
    return unfinished


def publish(unfinished: Path, keep: int | None = None) -> Path:
    """Gives a checkpoint its name, once all that is in it is on the disk.

    Args:
        unfinished: what `begin` made.
        keep: how many to keep of those up to this one, the newest; None keeps all.
    """
    sync_folder(unfinished)
    path = unfinished.with_name(unfinished.name.partition(".")[0])
    unfinished.rename(path)
    sync_folder(path.parent)
    if keep is not None:
        complete = list(complete_steps(path.parent).values())
        # Later ones, which a training that went back is yet to reach, are not its to remove.
        for old in complete[: complete.index(path) + 1][: -max(1, keep)]:
            gone = old.with_name(f"{old.name}.tmp-old")  # never half a checkpoint with a full name
            old.rename(gone)
            shutil.rmtree(gone)
    return path


def write_synced(path: Path, data: bytes) -> None:
    """A small file that is on the disk, whole, when this returns."""
    with open(path, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder last through a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
