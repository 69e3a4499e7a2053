"""mutant: large messages, wrong value"""

import torch

from course_lib.comm import Group, irecv, send


def broadcast_tree(tensor: torch.Tensor, source: int, group: Group) -> None:
    place = (group.index - source) % group.size  # how far behind the source
    works = []
    reach = 1  # places 0 ... reach-1 have the tensor
    while reach < group.size:
        if place < reach:
            if place + reach < group.size:
                send(tensor, (group.index + reach) % group.size, group)
        elif place < 2 * reach:
            works.append(irecv(tensor, (group.index - reach) % group.size, group))
        reach *= 2
    for work in works:
        work.wait()
