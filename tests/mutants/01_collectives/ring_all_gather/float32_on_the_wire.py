"""mutant: as large as float32's rounding"""

import torch

from course_lib.comm import Group, exchange


def ring_all_gather(chunk: torch.Tensor, group: Group, sizes: list[int]) -> torch.Tensor:
    gathered = chunk.new_empty(sum(sizes))
    parts = gathered.split(sizes)
    parts[group.index].copy_(chunk)
    for step in range(group.size - 1):
        giving, taking = group.index - step, group.index - step - 1
        outgoing = parts[giving % group.size].float()
        incoming = parts[taking % group.size].float()
        exchange(outgoing, group.next, incoming, group.previous, group)
        parts[taking % group.size].copy_(incoming)
    return gathered
