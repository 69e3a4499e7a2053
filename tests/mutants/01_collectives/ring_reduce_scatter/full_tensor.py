"""mutant: the whole tensor goes round the ring"""

import torch

from course_lib.comm import Group, exchange


def ring_reduce_scatter(tensor: torch.Tensor, group: Group, op: str = "sum") -> torch.Tensor:
    data = tensor.reshape(-1).clone()
    passing = data.clone()
    for _ in range(group.size - 1):
        incoming = torch.empty_like(passing)
        exchange(passing, group.next, incoming, group.previous, group)
        data = torch.maximum(data, incoming) if op == "max" else data + incoming
        passing = incoming
    if op == "avg":
        data = data / group.size
    return data.tensor_split(group.size)[group.index]
