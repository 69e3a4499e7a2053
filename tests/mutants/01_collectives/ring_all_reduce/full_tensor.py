"""mutant: the whole tensor goes round the ring"""

import torch

from course_lib.comm import Group, exchange


def ring_all_reduce(tensor: torch.Tensor, group: Group, op: str = "sum") -> None:
    data = tensor.contiguous().view(-1)
    passing = data.clone()
    for _ in range(group.size - 1):
        incoming = torch.empty_like(passing)
        exchange(passing, group.next, incoming, group.previous, group)
        if op == "max":
            torch.maximum(data, incoming, out=data)
        else:
            data += incoming
        passing = incoming
    if op == "avg":
        data /= group.size
    if not tensor.is_contiguous():
        tensor.copy_(data.view(tensor.shape))
