"""A process moves its memory into huge pages, and all that is in it stays."""

from __future__ import annotations

import platform
import re
import subprocess
import sys

import pytest

from course_lib.ranks.system.processes import LINUX

PROGRAM = """
import re
from pathlib import Path
from course_lib.ranks.system.pages import use_huge_pages

kept = [str(number) * 20 for number in range(300_000)]
use_huge_pages()
assert all(text == str(number) * 20 for number, text in enumerate(kept))
print(Path("/proc/self/smaps_rollup").read_text())
"""


def has_the_call() -> bool:
    """Whether the kernel can do it: Linux 6.1."""
    found = re.match(r"(\d+)\.(\d+)", platform.release())
    return LINUX and found is not None and (int(found[1]), int(found[2])) >= (6, 1)


@pytest.mark.skipif(not has_the_call(), reason="Linux 6.1 moves memory into huge pages")
def test_much_memory_lies_in_huge_pages_and_is_unchanged() -> None:
    said = subprocess.run(
        [sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True
    ).stdout
    held, huge = (int(re.findall(rf"{name}:\s+(\d+) kB", said)[0])
                  for name in ("Anonymous", "AnonHugePages"))  # fmt: skip
    assert held > 50_000
    assert huge > held / 4, "of small pieces only what lies between two borders of 2 MiB moves"
