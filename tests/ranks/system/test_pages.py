"""A process moves its memory into huge pages, and all that is in it stays."""

from __future__ import annotations

import ctypes
import mmap
import re
import subprocess
import sys

import pytest

from course_lib.ranks.system.pages import MADV_COLLAPSE
from course_lib.ranks.system.processes import LINUX

PROGRAM = """
from pathlib import Path
from course_lib.ranks.system.pages import use_huge_pages

kept = [str(number) * 20 for number in range(300_000)]
use_huge_pages()
assert all(text == str(number) * 20 for number, text in enumerate(kept))
rollup = Path("/proc/self/smaps_rollup")
print(rollup.read_text() if rollup.exists() else "")
"""


def kernel_moves_memory() -> bool:
    """Whether this kernel can, and has huge pages left: it is asked for some."""
    if not LINUX:
        return False
    with mmap.mmap(-1, 8 << 20, flags=mmap.MAP_PRIVATE) as area:
        area.write(bytes(8 << 20))
        first = ctypes.c_char.from_buffer(area)
        refused = ctypes.CDLL(None).madvise(
            ctypes.byref(first), ctypes.c_size_t(8 << 20), MADV_COLLAPSE
        )
        del first  # an area that somebody looks at cannot be closed
    return not refused


def test_memory_lies_in_huge_pages_and_is_unchanged() -> None:
    said = subprocess.run(
        [sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True
    ).stdout
    huge = re.search(r"AnonHugePages:\s+(\d+) kB", said)
    if not kernel_moves_memory():
        pytest.skip("this kernel moves no memory into huge pages")
    assert huge is not None
    assert int(huge[1]) >= 4 * 2048, "of some 60 MB, between borders of 2 MiB"
