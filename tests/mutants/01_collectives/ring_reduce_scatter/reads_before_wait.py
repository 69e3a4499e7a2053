"""mutant: before its message was there"""

import torch

from course_lib.comm import Group, irecv, isend


def ring_reduce_scatter(tensor: torch.Tensor, group: Group, op: str = "sum") -> torch.Tensor:
    chunks = tensor.reshape(-1).tensor_split(group.size)
    passing = chunks[group.previous]
    for step in range(group.size - 1):
        mine = chunks[(group.index - step - 2) % group.size]
        incoming = torch.zeros_like(mine)
        receiving = irecv(incoming, group.previous, group)
        sending = isend(passing, group.next, group)
        passing = torch.maximum(incoming, mine) if op == "max" else incoming + mine
        receiving.wait()
        sending.wait()
    return passing / group.size if op == "avg" else passing
