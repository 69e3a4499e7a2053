"""How a checkpoint is refused: in three lines, one of which names the file or the tensor.

Notebook: 11 Distributed checkpoint (all exercises).
Source: the form of `trace.Refusal`, after einops.
Costs nothing.
The production version (torch.distributed.checkpoint) gathers one such error from each rank.
"""

from __future__ import annotations

from course_lib.trace import Refusal

LONGEST_LINE = 1000  # letters; the name of a file is there before them


class CheckpointError(Refusal):
    """A checkpoint that cannot be written, read or trusted. Its fields are short lines.

    Args:
        asked: what the caller wanted.
        found: what is there instead: a file, a tensor, a rank's error.
        why: why the two do not go together, or what to do.

    Attributes:
        errno: the system's number of the error behind it, as in an `OSError`; None without one.
    """

    errno: int | None = None

    def __init__(self, asked: str, found: str, why: str) -> None:
        super().__init__(_line(asked), _line(found), _line(why))


def _line(text: str) -> str:
    """One line, however many there are in the name that a stranger has given to a tensor."""
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]}..."
