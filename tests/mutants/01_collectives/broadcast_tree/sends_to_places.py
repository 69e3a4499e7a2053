"""mutant: exception, message to reach itself"""

import torch

from course_lib.comm import Group, recv, send


def broadcast_tree(tensor: torch.Tensor, source: int, group: Group) -> None:
    place = (group.index - source) % group.size  # how far behind the source
    reach = 1  # places 0 ... reach-1 have the tensor
    while reach < group.size:
        if place < reach:
            if place + reach < group.size:
                send(tensor, place + reach, group)
        elif place < 2 * reach:
            recv(tensor, place - reach, group)
        reach *= 2
