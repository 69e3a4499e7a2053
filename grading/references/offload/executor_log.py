"""An executor with one thread that notes when a call is started and when it is waited for."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any


class Read(Future):
    """A read of `Reader`; it notes when it is waited for."""

    def __init__(self, note: Callable[[], None]) -> None:
        super().__init__()
        self._note = note

    def result(self, timeout: float | None = None) -> Any:
        """Waits."""
        self._note()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> Any:
        """Waits as well."""
        self._note()
        return super().exception(timeout)


class Reader(Executor):
    """One thread that reads; notes when a read is started, and when it is first waited for.

    Args:
        slow: seconds that each read takes at least.
    """

    def __init__(self, slow: float = 0.0) -> None:
        self.started: list[Read] = []
        self.waited: list[int] = []
        self._slow = slow
        self._pool = ThreadPoolExecutor(1)

    def submit(self, function: Any, /, *args: Any, **options: Any) -> Any:
        """Starts a call."""
        number = len(self.started)
        read = Read(lambda: self.waited.append(number))
        self.started.append(read)
        read.set_running_or_notify_cancel()
        self._pool.submit(self._carry_out, read, function, args, options)
        return read

    def _carry_out(self, read: Read, function: Any, args: Any, options: Any) -> None:
        time.sleep(self._slow)
        try:
            read.set_result(function(*args, **options))
        except BaseException as error:
            read.set_exception(error)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Ends the thread."""
        self._pool.shutdown(wait)
