"""variant: a list of chunks, put together at the end"""

import torch

from course_lib.comm import Group, exchange


def ring_all_reduce(tensor: torch.Tensor, group: Group, op: str = "sum") -> None:
    flat = tensor.flatten()
    parts = [part.clone() for part in flat.tensor_split(group.size)]
    for step in range(group.size - 1):
        give, take = (group.index - step) % group.size, (group.index - step - 1) % group.size
        got = torch.empty_like(parts[take])
        exchange(parts[give], group.next, got, group.previous, group)
        parts[take] = torch.maximum(parts[take], got) if op == "max" else parts[take] + got
    mine = (group.index + 1) % group.size
    if op == "avg":
        parts[mine] = parts[mine] / group.size
    for step in range(group.size - 1):
        give, take = (mine - step) % group.size, (mine - step - 1) % group.size
        exchange(parts[give], group.next, parts[take], group.previous, group)
    tensor.copy_(torch.cat(parts).view(tensor.shape))
