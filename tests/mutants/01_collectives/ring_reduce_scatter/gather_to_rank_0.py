"""mutant: everything goes through rank 0"""

import torch

from course_lib.comm import Group, recv, send


def ring_reduce_scatter(tensor: torch.Tensor, group: Group, op: str = "sum") -> torch.Tensor:
    data = tensor.reshape(-1).clone()
    mine = torch.empty_like(data.tensor_split(group.size)[group.index])
    if group.index:
        send(data, 0, group)
        recv(mine, 0, group)
        return mine
    incoming = torch.empty_like(data)
    for source in range(1, group.size):
        recv(incoming, source, group)
        data = torch.maximum(data, incoming) if op == "max" else data + incoming
    if op == "avg":
        data = data / group.size
    chunks = data.tensor_split(group.size)
    for to in range(1, group.size):
        send(chunks[to], to, group)
    return chunks[0]
