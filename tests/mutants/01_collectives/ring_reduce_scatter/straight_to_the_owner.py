"""mutant: messages leave the ring"""

import torch

from course_lib.comm import Group, exchange


def ring_reduce_scatter(tensor: torch.Tensor, group: Group, op: str = "sum") -> torch.Tensor:
    chunks = tensor.reshape(-1).tensor_split(group.size)
    mine = chunks[group.index].clone()
    for step in range(1, group.size):
        to, source = (group.index + step) % group.size, (group.index - step) % group.size
        incoming = torch.empty_like(mine)
        exchange(chunks[to], to, incoming, source, group)
        mine = torch.maximum(mine, incoming) if op == "max" else mine + incoming
    return mine / group.size if op == "avg" else mine
