"""What a rank prints goes into a pipe, whatever the program does to its streams."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress

from course_lib.ranks.rank_process.keyboard import take_keyboard

OUTPUTS = (("stdout", 1), ("stderr", 2))


class Output:
    """Python's two output streams, and the file numbers below them.

    Args:
        pipe: where both lead.
    """

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe

    def take(self) -> None:
        """Makes the streams write to the pipe at once, whole lines at a time; nobody types."""
        for name, fd in OUTPUTS:
            setattr(sys, name, self._stream(name, fd))
        take_keyboard()

    def flush(self) -> None:
        """Brings out what was printed; streams that the program has broken work again after it."""
        for name, fd in OUTPUTS:
            if not self._leads_out(fd):
                os.dup2(self._pipe, fd)
                self._say(f"File number {fd} ({name}) was closed or led elsewhere; it is back.")
            stream = getattr(sys, name)
            if stream is None or getattr(stream, "closed", False):
                setattr(sys, name, self._stream(name, fd))
                self._say(f"sys.{name} was closed or None; it is back.")
            with suppress(Exception):  # the program may have put something of its own there
                getattr(sys, name).flush()

    def _stream(self, name: str, fd: int) -> io.TextIOWrapper:
        raw = io.BufferedWriter(io.FileIO(fd, "w", closefd=False))
        at_once = name == "stderr"
        return io.TextIOWrapper(raw, "utf-8", "replace", line_buffering=True, write_through=at_once)

    def _leads_out(self, fd: int) -> bool:
        with suppress(OSError):
            return os.path.sameopenfile(fd, self._pipe)
        return False

    def _say(self, text: str) -> None:
        """Prints a line of the runtime's own, whatever the program did to the streams."""
        os.write(self._pipe, f"{text}\n".encode())
