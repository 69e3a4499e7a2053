"""A run's folder: what lies in it, and that one job at a time writes there.

Source: flock(2), whose lock goes with the process that holds it, however that ends.
Costs one small file that stays; the lock is taken on index 0 alone.
The production version has a service that knows which job owns which name.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from course_lib.checkpoint import CheckpointError, complete_steps
from course_lib.checkpoint.agree import together
from course_lib.comm import Group
from course_lib.train.command.config import RunConfig, flag_of

CHECKPOINTS = "checkpoints"  # folders and files inside a run's folder
RECORDINGS = "recordings"
CONFIG, LOG, LEDGERS, TRACE = "config.json", "log.jsonl", "ledgers.json", "trace.json"
LOCK = "job.lock"
PATIENCE = 10.0  # seconds: ranks of a job that was killed end within one
SAID = 2.0  # seconds of waiting for them that need no word


@contextmanager
def open_folder(config: RunConfig, group: Group) -> Iterator[None]:
    """Makes the run's folder and keeps other jobs out of it while the block runs; collective.

    Args:
        config: without a folder, nothing is done.
        group: all ranks.

    Raises:
        CheckpointError: another job is at work there; there are checkpoints, which a new run would
            mix with its own; or the folder cannot be written. The same on every rank.
    """
    if not config.folder:
        yield
        return
    folder, held = Path(config.folder), list[TextIO]()

    def take() -> None:
        if group.index == 0:
            folder.mkdir(parents=True, exist_ok=True)
            held.append(_lock(folder))
            _refuse_to_mix(folder, config)
            if last_checkpoint(folder) and (changed := changes(folder, config)):
                print(f"changed since the last start: {changed}", flush=True)

    try:
        together(f"open the folder {folder}", take, group)
        yield
    finally:
        for file in held:
            file.close()  # and with it the lock


def write_config(config: RunConfig, group: Group) -> None:
    """Keeps what the run is, once it has begun: a start that is refused changes nothing."""
    path = Path(config.folder) / CONFIG

    def write() -> None:
        if group.index == 0:
            path.write_text(json.dumps(asdict(config), indent=1))

    if config.folder:
        together(f"write {path}", write, group)


def _lock(folder: Path) -> TextIO:
    """The open file that holds the lock."""
    file = (folder / LOCK).open("a+")
    begin, said = time.monotonic(), False
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "another job"
            if not said and time.monotonic() > begin + SAID:
                said = True
                print(f"waiting for {holder}, which trains in {folder}", flush=True)
            if time.monotonic() > begin + PATIENCE:
                file.close()
                raise CheckpointError(
                    f"train in {folder}",
                    f"{holder}, which trains there",
                    "one job at a time writes to a folder: wait for its end, or give another",
                ) from None
            time.sleep(0.2)
    file.truncate(0)
    file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
    file.flush()
    return file


def _refuse_to_mix(folder: Path, config: RunConfig) -> None:
    saved = last_checkpoint(folder)
    if saved and not config.resume:
        raise CheckpointError(
            f"a new run in {folder}",
            f"checkpoints of another, up to step {saved}",
            "pass --resume to go on from there, or another --folder",
        )


def changes(folder: Path, config: RunConfig) -> str:
    """The options that a run is started again with and was not started with before.

    Args:
        folder: with what the last start has written down; "" is returned if that is not there.
        config: of this start.
    """
    try:
        before = asdict(read_config(folder))
    except (OSError, ValueError, TypeError):
        return ""
    kept = ("folder", "resume")
    return ", ".join(
        f"--{flag_of(name)} {before[name]!s} is now {value!s}"
        for name, value in asdict(config).items()
        if name not in kept and before[name] != value
    )


def recording_folder(folder: Path, after: int) -> Path:
    """Where a run is recorded that begins after step `after`; each start has its own."""
    return folder / RECORDINGS / f"after-{after}"


def last_checkpoint(folder: Path) -> int:
    """The step of the newest complete checkpoint of a run's folder; 0 if there is none."""
    saves = folder / CHECKPOINTS
    return max(complete_steps(saves), default=0) if saves.exists() else 0


def read_config(folder: Path | str) -> RunConfig:
    """The config of the run in a folder, as it was last started."""
    saved: dict[str, Any] = json.loads((Path(folder) / CONFIG).read_text())
    return RunConfig(**saved)
