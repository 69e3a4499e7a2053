"""A folder for temporary files that is gone with its owner, or soon after.

A killed process removes nothing. So whoever makes such a folder, and whoever ends what a killed
owner had started, removes those folders that nobody has locked. What was killed with all that it
had started leaves its folder until the next one is made.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX = "course-scratch-"
PATIENCE = 5.0  # seconds in which killed processes that wrote there must have ended


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A new folder in the system's temporary one; it is gone after the block."""
    sweep()
    folder, lock = _locked_folder()
    try:
        yield folder
    finally:
        try:
            _remove(folder)
        finally:
            os.close(lock)


def sweep(ending: int = 0) -> None:
    """Removes this user's folders whose owners have ended.

    Args:
        ending: process id of an owner that is about to end: it may have let go of a channel, and
            not of its lock yet. Its folders are waited for.
    """
    deadline, place = time.monotonic() + PATIENCE, Path(tempfile.gettempdir())
    while True:
        for folder in place.glob(f"{PREFIX}*"):
            with suppress(OSError):  # its owner lives, or it is somebody else's, or gone by now
                _remove_if_nobodys(folder)
        if not any(place.glob(f"{PREFIX}{ending}-*")) or time.monotonic() > deadline:
            return
        time.sleep(0.02)


def _remove_if_nobodys(folder: Path) -> None:
    if folder.stat().st_uid == os.getuid():
        lock = _lock(folder)
        try:
            remove_tree(folder)
        finally:
            os.close(lock)


def _locked_folder() -> tuple[Path, int]:
    """A new folder and its lock; another one if a sweep came between the two."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
        with suppress(OSError):
            lock = _lock(folder)
            if folder.exists():
                return folder, lock
            os.close(lock)


def _lock(folder: Path) -> int:
    """Locks a folder for as long as the open file that it returns.

    Raises:
        OSError: somebody else has it.
    """
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise
    return lock


def _remove(folder: Path) -> None:
    """Removes a folder in which processes that were just killed may still write."""
    deadline = time.monotonic() + PATIENCE
    while True:
        with suppress(OSError):
            remove_tree(folder)
        if not folder.exists() or time.monotonic() > deadline:
            return
        time.sleep(0.02)


def remove_tree(folder: Path) -> None:
    """Removes a folder however deep it is, and whatever the rights of what lies in it.

    A path of thousands of folders is too long for the system, and for a function that calls itself.
    So what lies in a subfolder is moved up before that is removed.

    Raises:
        OSError: something cannot be removed.
    """
    count = 0
    while inner := _subfolders_left(folder):
        for each in inner:
            os.chmod(each, 0o700)
            for below in _subfolders_left(each):
                count += 1
                os.chmod(below, 0o700)  # a folder can only be moved by who may write in it
                os.rename(below, folder / f"{count}.{os.getpid()}.up")
            os.rmdir(each)
    os.rmdir(folder)


def _subfolders_left(folder: Path) -> list[Path]:
    """The folders in a folder, whose files are removed."""
    with os.scandir(folder) as found:
        entries = list(found)
    for each in entries:
        if not each.is_dir(follow_symlinks=False):
            os.unlink(each.path)
    return [Path(each.path) for each in entries if each.is_dir(follow_symlinks=False)]


@contextmanager
def working_folder(place: str) -> Iterator[str]:
    """A new folder in `place` for a run; it and the one for its temporary files go after it."""
    folder = tempfile.mkdtemp(dir=place)
    try:
        yield folder
    finally:
        for each in (Path(folder), Path(f"{folder}.tmp")):
            with suppress(OSError):  # the whole place is removed later
                remove_tree(each)
