"""`%%ranks` somewhere else than in a cell's first line: IPython would only say "not found"."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell


def refuse_below_the_first_line(shell: InteractiveShell, names: tuple[str, ...]) -> None:
    """Has the notebook say where such a line must stand.

    Args:
        shell: the notebook's IPython shell.
        names: of magics for whole cells, such as `ranks`.
    """
    for name in names:
        # IPython takes the line for a magic for lines whose name begins with a %.
        shell.register_magic_function(_refusal_of(name), "line", f"%{name}")  # type: ignore[arg-type]


def _refusal_of(name: str) -> Callable[[str], NoReturn]:
    def refuse(line: str) -> NoReturn:
        raise UsageError(
            f"asked: %%{name} below other lines\n"
            "found: a line of Python above it\n"
            f"why: %%{name} is for a whole cell and is its first line; move it up, or cut the cell"
        )

    return refuse
