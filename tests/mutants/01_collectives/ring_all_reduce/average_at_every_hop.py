"""mutant: avg, averaged at every hop"""

import torch

from course_lib.comm import Group, exchange


def ring_all_reduce(tensor: torch.Tensor, group: Group, op: str = "sum") -> None:
    data = tensor.contiguous().view(-1)
    chunks = list(data.tensor_split(group.size))
    for step in range(group.size - 1):
        giving, taking = group.index - step, group.index - step - 1
        mine = chunks[taking % group.size]
        incoming = torch.empty_like(mine)
        exchange(chunks[giving % group.size], group.next, incoming, group.previous, group)
        if op == "max":
            torch.maximum(mine, incoming, out=mine)
        else:
            mine += incoming
            if op == "avg":
                mine /= 2
    for step in range(group.size - 1):
        giving, taking = group.index + 1 - step, group.index - step
        exchange(
            chunks[giving % group.size], group.next,
            chunks[taking % group.size], group.previous, group,
        )
    if not tensor.is_contiguous():
        tensor.copy_(data.view(tensor.shape))
