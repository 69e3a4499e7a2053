"""mutant: straight to everybody, messages leave the ring"""

import torch

from course_lib.comm import Group, exchange


def ring_all_gather(chunk: torch.Tensor, group: Group, sizes: list[int]) -> torch.Tensor:
    gathered = chunk.new_empty(sum(sizes))
    parts = gathered.split(sizes)
    parts[group.index].copy_(chunk)
    for step in range(1, group.size):
        to, source = (group.index + step) % group.size, (group.index - step) % group.size
        exchange(parts[group.index], to, parts[source], source, group)
    return gathered
