"""How much a run has written into its folders."""

from __future__ import annotations

import os
from contextlib import suppress

LEAST = 1 << 20  # bytes: removing ten thousand empty folders can take a disk a minute


def bytes_below(folder: str, enough: int) -> int:
    """Bytes of the files in the run's folder, and in the one for temporary files beside it.

    A file or folder counts as `LEAST` at least. More than `enough` is not counted to its end.
    """
    total, pending = 0, [folder, f"{folder}.tmp"]
    while pending and total <= enough:
        place = pending.pop()
        with suppress(OSError):  # it may vanish meanwhile
            os.chmod(place, 0o700)  # an answer may have made it so that nobody looks into it
        with suppress(OSError), os.scandir(place) as found:
            for each in found:
                total += max(LEAST, each.stat(follow_symlinks=False).st_blocks * 512)
                if each.is_dir(follow_symlinks=False):
                    pending.append(each.path)
                if total > enough:
                    break
    return total
