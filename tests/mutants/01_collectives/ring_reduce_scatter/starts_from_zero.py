"""mutant: rank i gets the sum of chunk i, wrong value, summand is missing"""

import torch

from course_lib.comm import Group, exchange


def ring_reduce_scatter(tensor: torch.Tensor, group: Group, op: str = "sum") -> torch.Tensor:
    chunks = tensor.reshape(-1).tensor_split(group.size)
    passing = chunks[group.previous]
    passing = passing * (group.size == 1)
    for step in range(group.size - 1):
        mine = chunks[(group.index - step - 2) % group.size]
        incoming = torch.empty_like(mine)
        exchange(passing, group.next, incoming, group.previous, group)
        passing = torch.maximum(incoming, mine) if op == "max" else incoming + mine
    return passing / group.size if op == "avg" else passing
