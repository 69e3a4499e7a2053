"""variant: a ring of one's own, in the other direction"""

import torch

from course_lib.comm import Group, irecv, isend


def step(out: torch.Tensor, room: torch.Tensor, group: Group) -> torch.Tensor:
    receiving, sending = irecv(room, group.next, group), isend(out, group.previous, group)
    receiving.wait()
    sending.wait()
    return room


def reduce_scatter(chunks: list[torch.Tensor], group: Group) -> torch.Tensor:
    passing = chunks[group.next]
    for away in range(2, group.size + 1):
        mine = chunks[(group.index + away) % group.size]
        passing = step(passing, torch.empty_like(mine), group) + mine
    return passing


def all_gather(chunks: list[torch.Tensor], mine: torch.Tensor, group: Group) -> torch.Tensor:
    found = {group.index: mine}
    for away in range(1, group.size):
        index = (group.index + away) % group.size
        found[index] = step(found[(index - 1) % group.size], torch.empty_like(chunks[index]), group)
    return torch.cat([found[index] for index in range(group.size)])


def hierarchical_all_reduce(tensor: torch.Tensor, node: Group, between: Group) -> None:
    parts = list(tensor.flatten().tensor_split(node.size))
    mine = reduce_scatter(parts, node)
    pieces = list(mine.tensor_split(between.size))
    mine = all_gather(pieces, reduce_scatter(pieces, between), between)
    tensor.copy_(all_gather(parts, mine, node).view(tensor.shape))
