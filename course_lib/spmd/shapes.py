"""Where a sharded dim goes when an operation moves the dims of a tensor.

Notebook: 06 Tensor parallel (types of a distributed tensor).
Source: the sharding rules of GSPMD (Xu et al., 2021) and of DTensor's operations.
Costs nothing.
The production version also says how uneven pieces are padded.

Each function takes the dim, the shapes before and after on one rank, and the arguments; it returns
the new dim, or None if the pieces do not lie along any dim of the result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

Shape = Sequence[int]
Mover = Callable[[int, Shape, Shape, Sequence[Any]], int | None]


def kept(dim: int, before: Shape, after: Shape, args: Sequence[Any]) -> int | None:
    """The dim stays where it is."""
    return dim if len(before) == len(after) else None


def broadcast(dim: int, before: Shape, after: Shape, args: Sequence[Any]) -> int | None:
    """Dims are added in front."""
    return dim + len(after) - len(before)


def swapped(dim: int, before: Shape, after: Shape, args: Sequence[Any]) -> int | None:
    """Two dims change places: the given ones, else the first two."""
    first, second = (each % len(before) for each in (args[1:3] if len(args) > 2 else (0, 1)))
    return {first: second, second: first}.get(dim, dim)


def permuted(dim: int, before: Shape, after: Shape, args: Sequence[Any]) -> int | None:
    """Dims in a given order."""
    return [each % len(before) for each in args[1]].index(dim)


def inserted(dim: int, before: Shape, after: Shape, args: Sequence[Any]) -> int | None:
    """A dim comes in at the given place."""
    place = (args[1] if len(args) > 1 else 0) % len(after)
    return dim + (dim >= place)


def removed(dim: int, before: Shape, after: Shape, args: Sequence[Any]) -> int | None:
    """The given dims go: of select, squeeze, unbind."""
    given = args[1] if len(args) > 1 else 0
    gone = {each % len(before) for each in (given if isinstance(given, list) else [given])}
    return None if dim in gone else dim - sum(each < dim for each in gone)


def cut(dim: int, before: Shape, after: Shape, args: Sequence[Any]) -> int | None:
    """A part along the given dim (0 if none is): of slice, narrow, cat."""
    place = (args[1] if len(args) > 1 and isinstance(args[1], int) else 0) % len(before)
    return None if place == dim and before[dim] != after[dim] else dim


def split(dim: int, before: Shape, after: Shape, args: Sequence[Any]) -> int | None:
    """Parts along the dim that comes third among the arguments."""
    place = (args[2] if len(args) > 2 else 0) % len(before)
    return None if place == dim else dim


def joined(dim: int, before: Shape, after: Shape, args: Sequence[Any]) -> int | None:
    """Tensors one behind the other along the given dim."""
    place = (args[1] if len(args) > 1 else 0) % len(before)
    return None if place == dim else dim


def viewed(dim: int, before: Shape, after: Shape, args: Sequence[Any]) -> int | None:
    """The same elements in another shape: the dim with as many elements before it."""
    front = math.prod(before[:dim])
    places = [d for d in range(len(after)) if math.prod(after[:d]) == front]
    return next((d for d in places if after[d] != 1), places[0] if places else None)


def padded(dim: int, before: Shape, after: Shape, args: Sequence[Any]) -> int | None:
    """What goes back through a slice, along the dim that comes third."""
    return None if args[2] % len(after) == dim else dim


def reduced(dim: int, before: Shape, after: Shape, args: Sequence[Any]) -> int | None:
    """A reduction over the given dims; None if `dim` is among them."""
    gone = reduced_dims(before, args)
    if dim in gone:
        return None
    return dim if len(after) == len(before) else dim - sum(each < dim for each in gone)


def reduced_dims(before: Shape, args: Sequence[Any]) -> set[int]:
    """The dims that a reduction is over; all, if it names none."""
    given = args[1] if len(args) > 1 else None
    dims = [given] if isinstance(given, int) and not isinstance(given, bool) else given
    if not isinstance(dims, list) or not dims:
        return set(range(len(before)))
    return {each % max(len(before), 1) for each in dims}
