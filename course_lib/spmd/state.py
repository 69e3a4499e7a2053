"""Which value each rank's tensors have now, also when one shows a part of another's memory.

Notebook: 06 Tensor parallel (types of a distributed tensor).
Source: the storage and view model of torch's tensors.
Costs: a write looks at all views of its storage.
The production version keeps the type on the tensor, and views of a buffer are on their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from course_lib.spmd.aligned import Record
from course_lib.spmd.shapes import viewed
from course_lib.spmd.types import Axis, P, R, S, Type, V, Value

Tensor = dict[str, Any]


class State:
    """Values by rank and tensor number.

    Args:
        records: of all ranks.
    """

    def __init__(self, records: Sequence[Record]) -> None:
        self._tensors = [record["tensors"] for record in records]
        self._values: list[dict[int, Value]] = [{} for _ in records]
        self._views: list[dict[int, list[int]]] = [{} for _ in records]
        self._apart: list[dict[int, frozenset[int]]] = [{} for _ in records]
        self._made: dict[tuple[object, ...], tuple[Value, ...]] = {}  # one for all ranks, and why

    def get(self, rank: int, number: int) -> Value | None:
        """What is known of a tensor; None if it was never made or seen."""
        return self._values[rank].get(number)

    def place(self, numbers: Sequence[int], axes: Sequence[Axis]) -> None:
        """Notes on which axes the ranks' tensors lie at different places of their storages.

        If the storage becomes the same on all ranks, these become its pieces, and not the same.
        """
        pairs = list(zip(self._tensors, numbers, strict=True))
        firsts = [tensors[number]["first"] for tensors, number in pairs]
        if len(set(firsts)) > 1:
            apart = frozenset(n for n, axis in enumerate(axes) if not axis.holds(firsts))
            for rank, number in enumerate(numbers):
                self._apart[rank][number] = apart

    def set(self, rank: int, number: int, value: Value, *, wrote: bool) -> None:
        """Notes a tensor's value; if it was written to, also for all that show the same memory."""
        values, tensors = self._values[rank], self._tensors[rank]
        mine = tensors[number]
        views = self._views[rank].setdefault(mine["storage"], [])
        if number not in values:
            views.append(number)
        values[number] = value
        for other in views if wrote else ():
            its = tensors[other]
            if other != number and its["first"] < mine["last"] and mine["first"] < its["last"]:
                inside = mine["first"] <= its["first"] and its["last"] <= mine["last"]
                apart = self._apart[rank].get(other if inside else number, frozenset())
                values[other] = self._seen_by(values[other], value, mine, its, apart, inside)

    def _seen_by(
        self,
        old: Value,
        new: Value,
        mine: Tensor,
        its: Tensor,
        apart: frozenset[int],
        inside: bool,
    ) -> Value:
        """What another view shows now: the same object for all ranks on which this happens."""
        key = (id(old), id(new), inside, tuple(mine["shape"]), tuple(its["shape"]), apart)
        if key not in self._made:
            made = _shown(old, new, mine, its, apart) if inside else _joined(old, new, apart)
            self._made[key] = (made, old, new)
        return self._made[key][0]


def _shown(old: Value, new: Value, mine: Tensor, its: Tensor, apart: frozenset[int]) -> Value:
    """A part of what was written, or all of it in another shape, seen by another view."""
    if its["shape"] == mine["shape"]:
        return new
    whole = its["first"] == mine["first"] and its["last"] == mine["last"]
    alike = whole and its["dense"] and mine["dense"]
    types = [_reshaped(each, mine, its) if alike else _part(each) for each in new.types]
    for axis in apart:
        types[axis] = old.types[axis] if old.types[axis].letter == "S" else V
    return replace(new, types=tuple(types), piece=None)


def _part(type_: Type) -> Type:
    return V if type_.letter == "S" else type_


def _reshaped(type_: Type, mine: Tensor, its: Tensor) -> Type:
    if type_.letter != "S":
        return type_
    place = viewed(type_.dim, mine["shape"], its["shape"], ())
    return V if place is None else S(place)


def _joined(old: Value, new: Value, apart: frozenset[int]) -> Value:
    """A tensor of which a part was written: on some axes each rank another one."""
    types = tuple(
        V if axis in apart else _either(a, b, old.zero)
        for axis, (a, b) in enumerate(zip(old.types, new.types, strict=True))
    )
    parts = {n for n, (a, b) in enumerate(zip(old.types, types, strict=True)) if R == a != b}
    return replace(
        old, types=types, zero=old.zero and new.zero, sure=old.sure or new.sure,
        torn=old.torn | parts if old.sure else old.torn, added=new.added or old.added,
        made=new.made, line=new.line,
    )  # fmt: skip


def _either(old: Type, new: Type, was_zero: bool) -> Type:
    if was_zero and new in (R, P):
        return new
    return old if old == new else V
