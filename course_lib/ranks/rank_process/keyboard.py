"""A rank has no keyboard: what would wait for one is refused, with what to do instead."""

from __future__ import annotations

import io
import sys
from typing import Any, NoReturn

from course_lib.trace import Refusal


def take_keyboard() -> None:
    """Makes `input()`, reading from `sys.stdin` and `breakpoint()` say that nobody can answer."""
    sys.stdin = _Keyboard()
    sys.breakpointhook = _no_debugger


class _Keyboard(io.TextIOBase):
    """Standard input that refuses."""

    def readline(self, size: int = -1, /) -> NoReturn:  # type: ignore[override]
        _refuse("a line from the keyboard")

    def read(self, size: int | None = -1, /) -> NoReturn:
        _refuse("text from the keyboard")


def _no_debugger(*args: Any, **options: Any) -> NoReturn:
    _refuse("breakpoint()")


def _refuse(asked: str) -> NoReturn:
    raise Refusal(
        f"{asked} in a cell of %%ranks",
        "a process of its own, without a keyboard",
        "ask in a cell without %%ranks and hand the answer over with push(name=...); to look into "
        "a rank, print there, or pull its variables",
    )
