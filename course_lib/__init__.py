"""Distributed training from scratch: the library under the course.

`%load_ext course_lib` in a notebook gives it `%%ranks`, `%grade` and what belongs to them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Registers the magics in a notebook, and starts the preloaded process."""
    import atexit

    from course_lib.grade.magic import GradeMagics
    from course_lib.ranks.magic.first_line import refuse_below_the_first_line
    from course_lib.ranks.magic.magic import RanksMagics

    ranks = RanksMagics(shell)
    shell.register_magics(ranks, GradeMagics(shell, ranks.server))
    refuse_below_the_first_line(shell, ("ranks", "torchrun", "grade"))
    shell.push(ranks.names())
    atexit.register(ranks.close)
