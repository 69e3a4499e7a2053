"""mutant: but the source is rank, counted from the source"""

import torch

from course_lib.comm import Group, recv, send


def broadcast_tree(tensor: torch.Tensor, source: int, group: Group) -> None:
    place = (group.index + source) % group.size  # how far behind the source
    reach = 1  # places 0 ... reach-1 have the tensor
    while reach < group.size:
        if place < reach:
            if place + reach < group.size:
                send(tensor, (group.index + reach) % group.size, group)
        elif place < 2 * reach:
            recv(tensor, (group.index - reach) % group.size, group)
        reach *= 2
