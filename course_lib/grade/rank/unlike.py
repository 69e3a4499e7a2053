"""Makes ranks differ as processes do that are started one by one: forks of one have much in common.

What stays: the order in which a set of texts is gone through, and where Python's own objects lie.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def own_hash(rank: int) -> Callable[[Any], int]:
    """A rank's `hash`: every process of Python has a salt of its own for texts, and no other."""

    def salted(thing: Any, /) -> int:
        return hash((rank, thing) if _has_text(thing) else thing)

    return salted


def _has_text(thing: Any) -> bool:
    if isinstance(thing, (tuple, frozenset)):
        return any(map(_has_text, thing))
    return isinstance(thing, (str, bytes))


def move_objects(rank: int) -> list[bytes]:
    """Small objects of every size: while they are kept, later ones lie elsewhere on each rank."""
    return [bytes(size) for size in range(0, 480, 16) for _ in range(rank)]
