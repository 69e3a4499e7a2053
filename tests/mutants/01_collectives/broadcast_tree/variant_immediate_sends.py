"""variant: all sends under way at once, waited for at the end"""

import torch

from course_lib.comm import Group, irecv, isend


def broadcast_tree(tensor: torch.Tensor, source: int, group: Group) -> None:
    order = [(source + place) % group.size for place in range(group.size)]
    place = order.index(group.index)
    if place:
        parent = place - (1 << (place.bit_length() - 1))
        irecv(tensor, order[parent], group).wait()
    children = [place + (1 << bit) for bit in range(place.bit_length(), group.size.bit_length())]
    work = [isend(tensor, order[child], group) for child in children if child < group.size]
    for each in work:
        each.wait()
