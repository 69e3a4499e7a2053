"""A rank's ledger whose marks the judge hears of when they happen."""

from __future__ import annotations

from collections.abc import Callable

from course_lib.trace import Ledger


class ToldLedger(Ledger):
    """A ledger on the switch, which has its own book of the calls.

    Args:
        rank: as for `Ledger`.

    Attributes:
        tell: called with the name of each mark and of each span that ends; None before there is
            somebody to be told.
    """

    tell: Callable[[str], None] | None = None

    def add_span(self, name: str, begin: float) -> None:
        """As in `Ledger`."""
        super().add_span(name, begin)
        if self.tell is not None:
            self.tell(name)

    def forget(self) -> None:
        """Keeps all: the judge holds it against the switch's book."""

    def mark(self, name: str) -> None:
        """As in `Ledger`."""
        super().mark(name)
        if self.tell is not None:
            self.tell(name)
