"""mutant: everything goes through rank 0, number of rounds"""

import torch

from course_lib.comm import Group, recv, send


def halving_doubling_all_reduce(tensor: torch.Tensor, group: Group) -> None:
    if group.index:
        send(tensor, 0, group)
        recv(tensor, 0, group)
        return
    incoming = torch.empty_like(tensor)
    for source in range(1, group.size):
        recv(incoming, source, group)
        tensor += incoming
    for to in range(1, group.size):
        send(tensor, to, group)
