"""mutant: as large as float32's rounding"""

import torch

from course_lib.comm import Group, recv, send


def broadcast_tree(tensor: torch.Tensor, source: int, group: Group) -> None:
    place = (group.index - source) % group.size  # how far behind the source
    reach = 1  # places 0 ... reach-1 have the tensor
    while reach < group.size:
        if place < reach:
            if place + reach < group.size:
                send(tensor.float(), (group.index + reach) % group.size, group)
        elif place < 2 * reach:
            narrow = tensor.float()
            recv(narrow, (group.index - reach) % group.size, group)
            tensor.copy_(narrow)
        reach *= 2
