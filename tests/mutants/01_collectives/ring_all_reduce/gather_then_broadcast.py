"""mutant: everything goes through rank 0"""

import torch

from course_lib.comm import Group, recv, send


def ring_all_reduce(tensor: torch.Tensor, group: Group, op: str = "sum") -> None:
    data = tensor.contiguous().view(-1)
    if group.index == 0:
        incoming = torch.empty_like(data)
        for source in range(1, group.size):
            recv(incoming, source, group)
            if op == "max":
                torch.maximum(data, incoming, out=data)
            else:
                data += incoming
        if op == "avg":
            data /= group.size
        for target in range(1, group.size):
            send(data, target, group)
    else:
        send(data, 0, group)
        recv(data, 0, group)
    if not tensor.is_contiguous():
        tensor.copy_(data.view(tensor.shape))
