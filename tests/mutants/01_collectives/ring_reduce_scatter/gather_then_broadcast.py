"""mutant: a hot spot"""

import torch

from course_lib.comm import Group, recv, send


def ring_reduce_scatter(tensor: torch.Tensor, group: Group, op: str = "sum") -> torch.Tensor:
    data = tensor.reshape(-1).clone()
    if group.index:
        send(data, 0, group)
        recv(data, 0, group)
    else:
        incoming = torch.empty_like(data)
        for source in range(1, group.size):
            recv(incoming, source, group)
            data = torch.maximum(data, incoming) if op == "max" else data + incoming
        if op == "avg":
            data = data / group.size
        for to in range(1, group.size):
            send(data, to, group)
    return data.tensor_split(group.size)[group.index]
