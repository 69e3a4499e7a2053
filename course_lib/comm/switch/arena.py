"""Memory that one rank and the switch share: what a rank gives lies here, and what it gets.

Notebook: none of its own.
Source: the shared-memory transports of MPI libraries (Open MPI's vader).
Costs one copy into it and one out of it for each call.
The production version lets the other side read the sender's own memory (process_vm_readv).
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import tempfile

import torch

from course_lib.comm.errors import CommError

SIZE = 1 << 30  # bytes of address space; only those that were written to take memory
WORD = struct.Struct("<q")
FIRST = 64  # before it lies the word that says which call the rank waits for
ALIGNED = 64


def shared_file() -> int:
    """An open file without a name, in memory where the system can do that, that cannot shrink.

    Whoever maps a file can be killed by another that cuts it off: the switch must not be.
    """
    if not hasattr(os, "memfd_create"):
        with tempfile.TemporaryFile() as file:
            os.ftruncate(file.fileno(), SIZE)
            return os.dup(file.fileno())
    fd = os.memfd_create("course", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, SIZE)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return fd


class Arena:
    """One side's view of the shared memory.

    Args:
        fd: from `shared_file`; it is closed here.
    """

    def __init__(self, fd: int) -> None:
        self._map = mmap.mmap(fd, SIZE)
        os.close(fd)
        self._used: list[tuple[int, int]] = []  # (begin, end), ascending

    # --- the word ------------------------------------------------------------------------------
    @property
    def waits_for(self) -> int:
        """Number of the call that the rank's program waits for, as it says; -1 if it computes."""
        return int(WORD.unpack_from(self._map)[0]) - 1

    @waits_for.setter
    def waits_for(self, number: int) -> None:
        WORD.pack_into(self._map, 0, number + 1)

    # --- the data ------------------------------------------------------------------------------
    def at(self, offset: int, dtype: torch.dtype, numel: int) -> torch.Tensor:
        """The tensor of `numel` elements that begins `offset` bytes from the beginning."""
        if not numel:
            return torch.empty(0, dtype=dtype)
        return torch.frombuffer(self._map, dtype=dtype, count=numel, offset=offset)

    def take(self, count: int) -> int:
        """Reserves `count` bytes; where they begin.

        Raises:
            CommError: there is no room: too many large calls are under way.
        """
        begin, place = FIRST, 0
        for place, (used, end) in enumerate((*self._used, (SIZE, SIZE))):
            if begin + count <= used:
                self._used.insert(place, (begin, begin + count))
                return begin
            begin = -(-end // ALIGNED) * ALIGNED
        raise CommError(
            f"{count} bytes for a call", f"{place} calls are under way", f"{SIZE} bytes are all"
        )

    def give_back(self, begin: int, count: int) -> None:
        """Ends a reservation."""
        self._used.remove((begin, begin + count))
