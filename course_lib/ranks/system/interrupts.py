"""Ctrl-C at a moment of our choosing: work that must not be left half done is done first.

Python raises KeyboardInterrupt between any two lines, also between taking bytes out of a socket and
keeping them. Where that would lose something, an interrupt is `held`; where such work has to wait
for somebody else, it is `interruptible` again.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SLICE = 0.1  # seconds between two looks whether an interrupt ends the wait for another thread


class _Hold:
    """The handler of SIGINT in a `held` block: it notes that one came, or passes it on in a wait.

    Args:
        before: the handler outside of the block. It raises KeyboardInterrupt, or decides not to.
    """

    def __init__(self, before: Callable[[int, FrameType | None], object]) -> None:
        self._before = before
        self.came = self.waits = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.waits:
            self.pass_on(frame)
        else:
            self.came = True

    def pass_on(self, frame: FrameType | None = None) -> None:
        """Calls the handler outside; until it has returned, another interrupt only counts."""
        self.came = self.waits = False
        self._before(signal.SIGINT, frame)
        self.waits = True


@contextmanager
def held() -> Iterator[None]:
    """An interrupt in this block is raised at its end, or in an `interruptible` wait inside.

    Only the main thread is ever interrupted: in other threads nothing changes. In a block of a
    block, the outer one holds.
    """
    before = signal.getsignal(signal.SIGINT)
    if not _in_main_thread() or isinstance(before, _Hold) or not callable(before):
        yield
        return
    hold = _Hold(before)
    signal.signal(signal.SIGINT, hold)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if hold.came:
            signal.raise_signal(signal.SIGINT)


@contextmanager
def interruptible() -> Iterator[None]:
    """In a `held` block: here an interrupt is raised at once, also one that came before."""
    hold = signal.getsignal(signal.SIGINT)
    if not _in_main_thread() or not isinstance(hold, _Hold):
        yield
        return
    hold.waits = True
    try:
        if hold.came:
            hold.pass_on()
        yield
    finally:
        hold.waits = False


class Turns:
    """A lock under which interrupts are held: one thread at a time, and no work left half done."""

    def __init__(self) -> None:
        self._lock = threading.RLock()

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Waits for the turn, which an interrupt may end, and gives it back after the block."""
        with held():
            while not self._lock.acquire(timeout=SLICE):
                with interruptible():
                    pass  # one that came meanwhile is raised here
            try:
                yield
            finally:
                self._lock.release()


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
