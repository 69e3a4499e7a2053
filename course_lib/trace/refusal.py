"""The one form in which this course refuses: what was asked, what was found, why it cannot be."""

from __future__ import annotations


class Refusal(ValueError):
    """Something that cannot be done. A person reads its three lines, a program its fields.

    Source: einops, whose errors name the operation, the input and the reason.

    Attributes:
        asked: what the caller wanted, as the end of the sentence "asked for ..." or "asked to ...".
        found: what is there instead: a shape, a rank, a file.
        why: why the two do not go together, or what to do.
    """

    def __init__(self, asked: str, found: str, why: str) -> None:
        super().__init__(asked, found, why)  # as `args`, of which pickle and copy make it again
        self.asked, self.found, self.why = asked, found, why

    def __str__(self) -> str:
        return f"asked: {self.asked}\nfound: {self.found}\nwhy: {self.why}"
