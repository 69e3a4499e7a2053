"""variant: two loops over runs of chunks; neighbours fold the ranks left over"""

import torch

from course_lib.comm import Group, exchange, recv, send


def halving_doubling_all_reduce(tensor: torch.Tensor, group: Group) -> None:
    data = tensor.reshape(-1)
    power = 1 << (group.size.bit_length() - 1)
    rest = group.size - power
    pairs = group.index < 2 * rest
    team = [index for index in range(group.size) if index >= 2 * rest or index % 2]
    incoming = torch.empty_like(data)
    if pairs and group.index % 2 == 0:
        send(data, group.index + 1, group)
        recv(data, group.index + 1, group)
    else:
        if pairs:
            recv(incoming, group.index - 1, group)
            data = data + incoming
        place = team.index(group.index)
        bounds = [data.numel() * part // power for part in range(power + 1)]
        distances = [1 << bit for bit in range(power.bit_length() - 1)]
        for adds, order in ((True, distances[::-1]), (False, distances)):
            for distance in order:
                other = place ^ distance
                mine, theirs = place // distance * distance, other // distance * distance
                kept = slice(bounds[mine], bounds[mine + distance])
                given = slice(bounds[theirs], bounds[theirs + distance])
                if adds:
                    exchange(data[given], team[other], incoming[kept], team[other], group)
                    data[kept] = data[kept] + incoming[kept]
                else:
                    exchange(data[kept], team[other], incoming[given], team[other], group)
                    data[given] = incoming[given]
        if pairs:
            send(data, group.index - 1, group)
    tensor.copy_(data.view(tensor.shape))
