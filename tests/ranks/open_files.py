"""What a process has open, for tests that nothing stays so."""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress


def open_files(pid: int | str = "self") -> Counter[str]:
    """The names of its open files, on Linux. By name: a number is given again."""
    found: Counter[str] = Counter()
    for number in os.listdir(f"/proc/{pid}/fd"):
        with suppress(OSError):  # the listing's own
            found[os.readlink(f"/proc/{pid}/fd/{number}")] += 1
    return found
