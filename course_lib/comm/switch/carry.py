"""What a call does to the data: the same in every run, since parts are added up in rank order.

Notebook: none of its own; 01 Collectives from scratch says what each collective means.
Source: MPI 4.0, chapter 6.
Costs: for N ranks and S bytes, an all-reduce reads and writes about 2·N·S bytes of memory.
The production version reduces on the way, in the switches of the network (SHARP).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from course_lib.comm.matching import Meeting, Post

INTO: dict[str, Callable[[torch.Tensor, torch.Tensor], object]] = {
    "sum": lambda total, other: total.add_(other),
    "max": lambda total, other: torch.maximum(total, other, out=total),
    "min": lambda total, other: torch.minimum(total, other, out=total),
    "product": lambda total, other: total.mul_(other),
}


class Place(NamedTuple):
    """Where a rank's part of a call lies.

    Attributes:
        post: what it asked for.
        given: what it gives, flat.
        result: where its result goes, flat; it may be the same memory.
    """

    post: Post
    given: torch.Tensor
    result: torch.Tensor


def carry(meeting: Meeting, places: dict[int, Place]) -> None:
    """Carries out a call that is complete and whose posts fit."""
    sender, receiver = meeting.channel.sender, meeting.channel.receiver
    if sender >= 0:
        taken = places[receiver].result
        taken.view(torch.uint8).copy_(places[sender].given.view(torch.uint8))
        return
    _collective(next(iter(meeting.posts.values())), [places[rank] for rank in meeting.group])


def _collective(post: Post, members: Sequence[Place]) -> None:
    match post.op:
        case "all_reduce":
            total = _reduced([each.given for each in members], post.reduction)
            for each in members:
                each.result.copy_(total)
        case "reduce":
            total = _reduced([each.given for each in members], post.reduction)
            members[post.root].result.copy_(total)
        case "broadcast":
            for index, each in enumerate(members):
                if index != post.root:
                    each.result.copy_(members[post.root].given)
        case "all_gather":
            whole = torch.cat([each.given for each in members])
            for each in members:
                each.result.copy_(whole)
        case "reduce_scatter":
            total = _reduced([each.given for each in members], post.reduction)
            for each, part in zip(members, total.chunk(len(members)), strict=True):
                each.result.copy_(part)
        case "all_to_all":
            _all_to_all(members)


def _reduced(parts: Sequence[torch.Tensor], reduction: str) -> torch.Tensor:
    """All parts added up (or the like) in the order of their index, in their own dtype."""
    total, *others = parts
    total = total.clone()
    for other in others:
        INTO[reduction](total, other)
    return total


def _all_to_all(members: Sequence[Place]) -> None:
    given = [each.given.split(list(each.post.given)) for each in members]
    for index, each in enumerate(members):
        for source, part in enumerate(each.result.split(list(each.post.taken))):
            part.copy_(given[source][index])
