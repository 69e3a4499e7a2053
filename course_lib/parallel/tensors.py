"""The tensors in anything that a forward takes or returns: the wrappers' hooks hang on them.

Notebook: 02 Data parallel, 04 ZeRO.
Source: torch.distributed.utils, which looks into dataclasses too.
Costs a walk over the arguments; nothing for a tensor alone.
The production version (FSDP2) knows lists, dicts and dataclasses, and no other objects.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map

PLAIN = (str, bytes, int, float, complex, type(None), type, nn.Module, torch.Generator)
Change = Callable[[torch.Tensor], torch.Tensor]


def find_tensors(value: Any) -> list[torch.Tensor]:
    """All tensors in a value: in lists, dicts, dataclasses, and attributes of other objects.

    A cache of keys and values, say, is an object with lists of tensors. Modules are not looked
    into: their parameters are not results.
    """
    return [value] if torch.is_tensor(value) else list(_walk(value, set()))


def _walk(value: Any, seen: set[int]) -> Iterator[torch.Tensor]:
    for leaf in tree_leaves(value):
        if torch.is_tensor(leaf):
            yield leaf
        elif not isinstance(leaf, PLAIN) and hasattr(leaf, "__dict__") and id(leaf) not in seen:
            seen.add(id(leaf))
            yield from _walk(list(vars(leaf).values()), seen)


def map_tensors(change: Change, value: Any) -> Any:
    """The same value with other tensors, in lists, tuples, dicts and dataclasses."""

    def one(leaf: Any) -> Any:
        if torch.is_tensor(leaf):
            return change(leaf)
        if dataclasses.is_dataclass(leaf) and not isinstance(leaf, type):
            fields = [f.name for f in dataclasses.fields(leaf) if f.init]
            changed = {name: map_tensors(change, getattr(leaf, name)) for name in fields}
            return dataclasses.replace(leaf, **changed)
        return leaf

    return tree_map(one, value)
