"""What a rank still says when a library aborts its process, as gloo does on a wrong size.

`abort` raises SIGABRT in the thread that calls it. Python's own handlers would run in the main
thread, which waits forever then; a handler of the C library runs at once, and the process ends
after it as it would have.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import Any

HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_int)


class LastWords:
    """Calls a function when this process aborts; not in processes that are forked from it.

    Args:
        tell: is called in the thread that aborts, while all others stand where they are.
    """

    def __init__(self, tell: Callable[[], None]) -> None:
        self._tell, self._pid = tell, os.getpid()
        self._handler = HANDLER(self._aborted)  # kept alive: the C library has only its address
        # Declared, or the address of the handler before would be cut to 32 bits.
        library: Any = ctypes.CDLL(None)
        library.signal.restype = ctypes.c_void_p
        library.signal.argtypes = [ctypes.c_int, HANDLER]
        library.signal(signal.SIGABRT, self._handler)

    def _aborted(self, number: int) -> None:
        if os.getpid() == self._pid:
            with suppress(Exception):
                self._tell()
