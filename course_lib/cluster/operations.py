"""Operations as torch dispatches them: what goes in, what comes out, and what decides that.

Notebook: 13 The mesh (a cluster in the cell).
Source: torch's operator schemas and their tags.
Costs some microseconds a look.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from functools import cache
from typing import Any, NamedTuple

import torch

META = torch.device("meta")
LISTS = (list, tuple)
DRAWS = (torch.ops.aten.normal_.default, torch.ops.aten.uniform_.default)


class Form(NamedTuple):
    """What comes out of an operation that makes one new tensor."""

    size: torch.Size
    stride: tuple[int, ...]
    dtype: torch.dtype


class Known(Enum):
    """What comes out of an operation that makes none."""

    IN_PLACE = "out comes its first argument, with other values"
    VIEW = "out comes a view of what went in: nothing is written"


@cache
def draws(func: Any) -> bool:
    """Whether an operation draws random numbers; to look among its tags takes microseconds."""
    return torch.Tag.nondeterministic_seeded in func.tags


@cache
def _is_looked_up(func: Any) -> bool:
    """Whether what an operation does follows from forms: in place, it may not change shape."""
    in_place = torch.Tag.pointwise in func.tags and name_of(func).endswith("_")
    return in_place or func in DRAWS or not func._schema.is_mutable


@cache
def name_of(func: Any) -> str:
    """An operation's name, as `mul_`."""
    name: str = func._schema.name
    return name.partition("::")[2]


def tensors_in(values: Any) -> list[torch.Tensor]:
    """The tensors among an operation's arguments, also those in lists."""
    found: list[torch.Tensor] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, LISTS):
            found += tensors_in(value)
    return found


def on_device(device: torch.device, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of an operation there; nothing is drawn where there is no data."""
    if not options:
        return {}
    changed = {"device": device} | ({"generator": None} if device == META else {})
    return {k: v if v is None else changed.get(k, v) for k, v in options.items()}


def key_of(func: Any, args: Any, options: Mapping[str, Any]) -> Any:
    """What decides the form of the result; None where that cannot be looked up."""
    if not _is_looked_up(func):
        return None
    return (func, *map(_part, args), *((k, _part(v)) for k, v in options.items()))


def _part(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return (value.shape, value.stride(), value.dtype)
    if isinstance(value, LISTS):
        return tuple(map(_part, value))
    return (type(value), value)


def form_of(tensor: torch.Tensor) -> Form:
    """What a tensor is, but for its numbers."""
    return Form(tensor.shape, tensor.stride(), tensor.dtype)


def empty(form: Form) -> torch.Tensor:
    """A new tensor of that form, without data."""
    return torch.empty_strided(form.size, form.stride, dtype=form.dtype, device=META)


def known_form(
    func: Any, args: Any, tensors: list[torch.Tensor], result: Any
) -> Form | Known | None:
    """What an operation did; None where it cannot be looked up the next time."""
    if args and result is args[0]:
        return Known.IN_PLACE
    if not isinstance(result, torch.Tensor):
        return None
    if result.untyped_storage()._cdata not in {t.untyped_storage()._cdata for t in tensors}:
        return form_of(result)
    return None if func._schema.is_mutable else Known.VIEW
