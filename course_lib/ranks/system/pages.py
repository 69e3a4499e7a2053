"""Memory in huge pages, so that a process that is forked often is forked cheaply."""

from __future__ import annotations

import ctypes
from pathlib import Path

from course_lib.ranks.system.processes import LINUX

MADV_COLLAPSE = 25  # madvise(2); Linux 6.1


def use_huge_pages() -> None:
    """Moves this process's own memory into pages of 2 MiB.

    A fork copies one entry of the page table for each page, and the child's end takes it away
    again: with torch imported, 57,000 entries of 4 KiB pages are most of what a rank costs. A child
    that writes gets a copy of 4 KiB as before. Older kernels refuse, and elsewhere there is no list
    of what a process has mapped: it stays as it is, which is only slower.
    """
    if not LINUX:
        return
    madvise = ctypes.CDLL(None).madvise
    for line in Path("/proc/self/maps").read_text().splitlines():
        place, rights, _, _, inode, *name = line.split(maxsplit=5)
        own = inode == "0" and (not name or name[0].startswith(("[heap]", "[anon")))
        if own and rights == "rw-p":
            start, end = (int(address, 16) for address in place.split("-"))
            madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), MADV_COLLAPSE)
