"""variant: MPICH's order, the farthest first"""

import torch

from course_lib.comm import Group, recv, send


def broadcast_tree(tensor: torch.Tensor, source: int, group: Group) -> None:
    place = (group.index - source) % group.size
    reach = 1
    while reach < group.size and not place & reach:
        reach *= 2
    if place:
        recv(tensor, (group.index - reach) % group.size, group)
    while reach > 1:
        reach //= 2
        if place + reach < group.size:
            send(tensor, (group.index + reach) % group.size, group)
