"""Named semaphores, which outlive the processes that made them: each says whose it is.

`multiprocessing` makes them for its queues, locks and pools wherever it spawns, and leaves it to a
process of its own to remove them. That one is killed with the rank that it belongs to.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from multiprocessing import process
from pathlib import Path

FOLDER = Path("/dev/shm")  # on Linux; elsewhere nobody lists them
NAME = "course-{}"  # of a family of processes, by the first one's number


def name_semaphores() -> None:
    """Semaphores that this process and its children make from here on carry its number."""
    # The one place where multiprocessing keeps the beginning of their names; children inherit it.
    process.current_process()._config["semprefix"] = f"/{NAME.format(os.getpid())}"  # type: ignore[attr-defined]


def remove_semaphores(pids: Iterable[int]) -> None:
    """Removes those of processes that have ended, and of what they had started."""
    for pid in pids:
        for path in FOLDER.glob(f"sem.{NAME.format(pid)}-*"):
            with suppress(OSError):
                path.unlink()
