"""mutant: number of rounds, this is the ring"""

import torch

from course_lib.comm import Group, exchange


def halving_doubling_all_reduce(tensor: torch.Tensor, group: Group) -> None:
    data = tensor.contiguous().view(-1)
    chunks = list(data.tensor_split(group.size))
    for step in range(2 * (group.size - 1)):
        taking = chunks[(group.index - step - 1) % group.size]
        incoming = torch.empty_like(taking)
        exchange(chunks[(group.index - step) % group.size], group.next, incoming, group.previous, group)
        taking.copy_(taking + incoming if step < group.size - 1 else incoming)
    tensor.copy_(data.view(tensor.shape))
