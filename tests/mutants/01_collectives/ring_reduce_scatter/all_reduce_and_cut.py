"""mutant: this is a whole all-reduce"""

import torch

from course_lib.comm import Group, exchange


def ring_reduce_scatter(tensor: torch.Tensor, group: Group, op: str = "sum") -> torch.Tensor:
    data = tensor.reshape(-1).clone()
    chunks = data.tensor_split(group.size)
    for step in range(2 * (group.size - 1)):
        giving = chunks[(group.index - step - 1) % group.size]
        taking = chunks[(group.index - step - 2) % group.size]
        incoming = torch.empty_like(taking)
        exchange(giving, group.next, incoming, group.previous, group)
        if step >= group.size - 1:
            taking.copy_(incoming)
        elif op == "max":
            torch.maximum(taking, incoming, out=taking)
        else:
            taking += incoming
    mine = chunks[group.index]
    return mine / group.size if op == "avg" else mine
