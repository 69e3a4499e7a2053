"""Gives a driver a group that is a part of the world, its ranks in another order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from course_lib.comm import Group

RANKS = "_ranks"  # the input that says which ranks are in the group, in the order of their index


def in_group(drive: Callable[..., Any]) -> Callable[..., Any]:
    """The driver on the group that its inputs name; on the world if they name none.

    Ranks outside that group only help to make it, and return None.
    """

    def driven(learner: Any, world: Group, **inputs: Any) -> Any:
        ranks = inputs.pop(RANKS, None)
        if ranks is None:
            return drive(learner, world, **inputs)
        rest = [rank for rank in range(world.size) if rank not in ranks]
        group = world.split([ranks, rest], "world")
        if world.rank in rest:
            return None
        torch.default_generator.manual_seed(1000 + group.index)  # as on a world of this size
        return drive(learner, group, **inputs)

    return driven
