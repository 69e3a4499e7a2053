"""A rank's ledger whose marks the judge hears of when they happen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from course_lib.trace import Ledger


class Fixed:
    """A method, or a value that is set once, that no attribute of an object takes the place of.

    Python asks a descriptor that can be set before it looks at what the object itself has.

    Args:
        method: what is called; None for a value that is to come.
    """

    def __init__(self, method: Callable[..., Any] | None = None) -> None:
        self._method = method
        self._values: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()

    def __get__(self, instance: Any, owner: type) -> Any:
        """The value, or the method, bound to its object as any other."""
        return self._method.__get__(instance, owner) if self._method else self._values.get(instance)

    def __set__(self, instance: Any, value: Any) -> None:
        """Sets the value, the first time.

        Raises:
            AttributeError: it is a method, or there is a value.
        """
        if self._method or instance in self._values:
            raise AttributeError("what the judge is told stays as it is")
        self._values[instance] = value


class ToldLedger(Ledger):
    """A ledger on the switch, which has its own book of the calls.

    Args:
        rank: as for `Ledger`.

    Attributes:
        tell: called with the name of each mark and of each span that ends; None before there is
            somebody to be told.
    """

    tell = Fixed()

    @Fixed
    def add_span(self, name: str, begin: float) -> None:
        """As in `Ledger`."""
        super().add_span(name, begin)
        if self.tell is not None:
            self.tell(name)

    def forget(self) -> None:
        """Keeps all: the judge holds it against the switch's book."""

    @Fixed
    def mark(self, name: str) -> None:
        """As in `Ledger`."""
        super().mark(name)
        if self.tell is not None:
            self.tell(name)
