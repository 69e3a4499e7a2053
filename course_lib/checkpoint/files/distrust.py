"""Opening files that a stranger may have made: nothing is waited for, followed or believed.

Notebook: 11 Distributed checkpoint (interchange).
Source: open(2), whose flags refuse links and do not wait at pipes; RFC 8259, section 4, on keys.
Costs nothing.
The production version trusts the folder, and its administrator the users.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Any

LONGEST = 2**62  # what a size or an offset may be at most
LONGEST_INDEX = 1 << 26  # bytes of the file that lists all others; 400 000 pieces have room in it
MOST_DIMS = 64  # of a tensor


class Wrong(Exception):
    """Something in a file is not as it should be; whoever catches it knows the file's name."""


def open_ordinary(path: Path) -> int:
    """A handle to read what is really a file: no link, no pipe to wait for, no endless device.

    Raises:
        OSError: it is not, or cannot be opened.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "not an ordinary file", str(path))
    return handle


def index_bytes(path: Path) -> bytes:
    """All of the file that lists the others.

    Raises:
        OSError: it cannot be opened.
        Wrong: it is so long that reading it would fill the memory.
    """
    with open(open_ordinary(path), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > LONGEST_INDEX:
            raise Wrong(f"{size} bytes, where such a file has at most {LONGEST_INDEX}")
        return file.read()


def no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """For `json.loads`, which would take the last of two values, where others take the first.

    Raises:
        ValueError: a key is there twice.
    """
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError(f"{len(pairs)} keys, {len(found)} of them different")
    return found
