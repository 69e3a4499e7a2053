"""Sees when a rank makes a file last, and when it gives one its name: `with watched(...)`."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

SYNCS, MOVES = ("fsync", "fdatasync"), ("replace", "rename")
Before = Callable[[str, int], None]
After = Callable[[str, Any], None]


@contextmanager
def watched(before: Before, after: After | None = None) -> Iterator[None]:
    """Calls functions around every sync of a file and every rename, while it is entered.

    Args:
        before: gets `sync` and the file's descriptor, or `replace` and 0.
        after: gets `sync` and the file's number and size, or `replace` and the target's path.
    """
    real = {name: getattr(os, name) for name in SYNCS + MOVES if hasattr(os, name)}
    for name, function in real.items():
        wrap = _sync if name in SYNCS else _move
        setattr(os, name, wrap(function, before, after or (lambda *_: None)))
    try:
        yield
    finally:
        for name, function in real.items():
            setattr(os, name, function)


def _sync(real: Callable[..., None], before: Before, after: After) -> Callable[..., None]:
    def call(file: Any) -> None:
        number = file if isinstance(file, int) else file.fileno()
        about = os.fstat(number)
        is_file = stat.S_ISREG(about.st_mode)  # a folder may be synced as well
        if is_file:
            before("sync", number)
        real(file)
        if is_file:
            after("sync", [about.st_ino, about.st_size])

    return call


def _move(real: Callable[..., None], before: Before, after: After) -> Callable[..., None]:
    def call(source: Any, target: Any, **options: Any) -> None:
        before("replace", 0)
        real(source, target, **options)
        after("replace", str(target))

    return call
