"""The one form in which this course refuses: what was asked, what was found, why it cannot be.

Notebook: every one of them.
Source: einops, whose error texts name the operation, the input and the reason.
Costs nothing.
"""

from __future__ import annotations


class CommError(ValueError):
    """A communication call that cannot be carried out, in three lines.

    Args:
        asked: what the caller wanted.
        found: what is there instead: shape, rank, group.
        why: why the two do not go together, or what to do.
    """

    def __init__(self, asked: str, found: str, why: str) -> None:
        super().__init__(f"asked: {asked}\nfound: {found}\nwhy: {why}")
