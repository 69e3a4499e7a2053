"""A disk that is full, in one sentence: which, what was lost, and how to go on.

Source: errno(3): no space, a quota, or a limit of the size of a file.
Costs nothing.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from course_lib.checkpoint import CheckpointError
from course_lib.train.command.folder import last_checkpoint

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def full_disk(error: Exception, folder: str) -> str:
    """The sentence, if that is what an error says of a run's folder; else nothing."""
    number = error.errno if isinstance(error, CheckpointError) else None
    if number not in FULL or not folder:
        return ""
    saved = last_checkpoint(Path(folder))
    good = f"the checkpoint of step {saved} is whole" if saved else "there is no checkpoint yet"
    return (
        f"The disk of {folder} is full ({os.strerror(number).lower()}): {good}; "
        "make room, and start the same line with --resume."
    )
