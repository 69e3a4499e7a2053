"""mutant: the whole result goes round the ring"""

import torch

from course_lib.comm import Group, exchange


def ring_all_gather(chunk: torch.Tensor, group: Group, sizes: list[int]) -> torch.Tensor:
    gathered = chunk.new_zeros(sum(sizes))
    gathered.split(sizes)[group.index].copy_(chunk)
    for _ in range(group.size - 1):
        incoming = torch.empty_like(gathered)
        exchange(gathered, group.next, incoming, group.previous, group)
        mine = gathered.split(sizes)[group.index].clone()
        gathered = torch.where(incoming != 0, incoming, gathered)
        gathered.split(sizes)[group.index].copy_(mine)
    return gathered
