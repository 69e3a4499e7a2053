"""mutant: that is doubling; send halves"""

import torch

from course_lib.comm import Group, exchange, recv, send


def halving_doubling_all_reduce(tensor: torch.Tensor, group: Group) -> None:
    def reduce(part: torch.Tensor, distance: int) -> None:
        if distance == 0:
            return
        partner = group.index ^ distance
        incoming = torch.empty_like(part)
        exchange(part, partner, incoming, partner, group)
        part += incoming
        reduce(part, distance // 2)

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
