"""variant: the owner of a run of places gives half of it away, recursively"""

import torch

from course_lib.comm import Group, recv, send


def spread(tensor: torch.Tensor, source: int, group: Group, first: int, end: int) -> None:
    """Place `first` has the tensor; those up to `end` get it."""
    if end - first < 2:
        return
    place, middle = (group.index - source) % group.size, (first + end + 1) // 2
    if place == first:
        send(tensor, (source + middle) % group.size, group)
    if place == middle:
        recv(tensor, (source + first) % group.size, group)
    if place < middle:
        spread(tensor, source, group, first, middle)
    else:
        spread(tensor, source, group, middle, end)


def broadcast_tree(tensor: torch.Tensor, source: int, group: Group) -> None:
    spread(tensor, source, group, 0, group.size)
