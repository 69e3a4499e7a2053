"""variant: the ring runs the other way, with isend and irecv"""

import torch

from course_lib.comm import Group, irecv, isend


def ring_all_reduce(tensor: torch.Tensor, group: Group, op: str = "sum") -> None:
    data = tensor.reshape(-1)
    chunks = data.tensor_split(group.size)
    for step in range(2 * (group.size - 1)):
        adding = step < group.size - 1
        shift = step if adding else step - group.size
        give = chunks[(group.index + shift) % group.size]
        take = chunks[(group.index + shift + 1) % group.size]
        incoming = torch.empty_like(take)
        receiving = irecv(incoming, group.next, group)
        sending = isend(give, group.previous, group)
        receiving.wait()
        sending.wait()
        if not adding:
            take.copy_(incoming)
        elif op == "max":
            take.copy_(torch.maximum(take, incoming))
        else:
            take.add_(incoming)
    if op == "avg":
        data.div_(group.size)
    tensor.copy_(data.view_as(tensor))
