"""mutant: the sum on 1–6 ranks"""

import torch

from course_lib.comm import Group, exchange, recv, send


def halving_doubling_all_reduce(tensor: torch.Tensor, group: Group) -> None:
    def reduce(part: torch.Tensor, distance: int) -> None:
        if distance == 0:
            return
        partner = group.index ^ distance
        low, high = part.split(max(1, part.numel() // 2))[:2]
        kept, given = (low, high) if group.index < partner else (high, low)
        incoming = torch.empty_like(kept)
        exchange(given, partner, incoming, partner, group)
        kept += incoming
        reduce(kept, distance // 2)
        exchange(kept, partner, given, partner, group)

    data = tensor.contiguous().view(-1)
    power = 1 << (group.size.bit_length() - 1)  # the largest power of two in N
    if group.index >= power:
        send(data, group.index - power, group)
        recv(data, group.index - power, group)
    else:
        speaks_for = group.index + power
        if speaks_for < group.size:
            incoming = torch.empty_like(data)
            recv(incoming, speaks_for, group)
            data += incoming
        reduce(data, power // 2)
        if speaks_for < group.size:
            send(data, speaks_for, group)
    tensor.copy_(data.view(tensor.shape))
