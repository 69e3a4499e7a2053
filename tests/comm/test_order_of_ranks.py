"""A group's ranks are in the order that its maker gave them, whatever their numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from course_lib import comm
from course_lib.comm import Group

PARTS = [[3, 1], [2, 0]]


def calls(world: Group) -> dict[str, Any]:
    """What every collective gives on a group whose ranks descend, or on one half of the world."""
    group = world.split(PARTS, "tp")
    mine = torch.tensor([float(group.rank)])
    gathered, ring = torch.zeros(2), torch.arange(2.0) + 10 * group.index
    comm.all_gather(gathered, mine, group)
    part = torch.zeros(1)
    comm.reduce_scatter(part, torch.tensor([1.0, 2.0]) * (1 + group.index), group)
    swapped = torch.zeros(2)
    comm.all_to_all(swapped, 10 * mine + torch.arange(2.0), group)
    first, total, got = mine.clone(), mine.clone(), torch.zeros(1)
    comm.broadcast(first, 0, group)
    comm.reduce(total, 1, group)
    comm.exchange(mine, group.next, got, group.previous, group)
    comm.ring_all_reduce(ring, group)
    return {
        "ranks": group.ranks, "index": group.index, "gathered": gathered.tolist(),
        "part": part.item(), "swapped": swapped.tolist(), "first": first.item(),
        "total": total.item() if group.index == 1 else None, "got": got.item(),
        "ring": ring.tolist(),
    }  # fmt: skip


def test_every_call_keeps_the_order(ranks: Callable[..., list[Any]]) -> None:
    for rank, found in enumerate(ranks(calls, 4)):
        members = next(part for part in PARTS if rank in part)
        index, other = members.index(rank), members[1 - members.index(rank)]
        assert found == {
            "ranks": tuple(members), "index": index, "gathered": [float(m) for m in members],
            "part": 3.0 * (1 + index), "swapped": [10.0 * m + index for m in members],
            "first": float(members[0]), "total": float(sum(members)) if index == 1 else None,
            "got": float(other), "ring": [10.0, 12.0],
        }  # fmt: skip


@pytest.mark.parametrize("parts", [[[3, 1], [2, 0]], [[2], [3, 0, 1]]])
def test_a_part_of_a_part_keeps_it_too(ranks: Callable[..., list[Any]], parts: Any) -> None:
    assert ranks(nested, 4, parts) == [
        next(part[::-1] for part in parts if rank in part) for rank in range(4)
    ]


def nested(world: Group, parts: list[list[int]]) -> list[float]:
    """Cuts a part of the world again, into itself backwards, and gathers on that."""
    group = world.split(parts, "dp")
    turned = group.split([list(range(group.size))[::-1]], "tp")
    gathered = torch.zeros(turned.size)
    comm.all_gather(gathered, torch.tensor([float(turned.rank)]), turned)
    assert list(turned.ranks) == [int(number) for number in gathered]
    return gathered.int().tolist()
