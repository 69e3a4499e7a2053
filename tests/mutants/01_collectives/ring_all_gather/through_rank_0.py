"""mutant: everything goes through rank 0"""

import torch

from course_lib.comm import Group, recv, send


def ring_all_gather(chunk: torch.Tensor, group: Group, sizes: list[int]) -> torch.Tensor:
    gathered = chunk.new_empty(sum(sizes))
    if group.index:
        send(chunk, 0, group)
        recv(gathered, 0, group)
        return gathered
    parts = gathered.split(sizes)
    parts[0].copy_(chunk)
    for source in range(1, group.size):
        recv(parts[source], source, group)
    for to in range(1, group.size):
        send(gathered, to, group)
    return gathered
