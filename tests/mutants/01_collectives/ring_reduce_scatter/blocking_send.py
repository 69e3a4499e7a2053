"""mutant: deadlock, Everybody sends and nobody receives"""

import torch

from course_lib.comm import Group, recv, send


def ring_reduce_scatter(tensor: torch.Tensor, group: Group, op: str = "sum") -> torch.Tensor:
    chunks = tensor.reshape(-1).tensor_split(group.size)
    passing = chunks[group.previous]
    for step in range(group.size - 1):
        mine = chunks[(group.index - step - 2) % group.size]
        incoming = torch.empty_like(mine)
        send(passing, group.next, group)
        recv(incoming, group.previous, group)
        passing = torch.maximum(incoming, mine) if op == "max" else incoming + mine
    return passing / group.size if op == "avg" else passing
