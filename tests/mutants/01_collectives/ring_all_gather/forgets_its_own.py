"""mutant: wrong value, rank 0"""

import torch

from course_lib.comm import Group, exchange


def ring_all_gather(chunk: torch.Tensor, group: Group, sizes: list[int]) -> torch.Tensor:
    gathered = chunk.new_empty(sum(sizes))
    parts = gathered.split(sizes)
    gathered.zero_()
    for step in range(group.size - 1):
        giving, taking = group.index - step, group.index - step - 1
        exchange(
            parts[giving % group.size], group.next,
            parts[taking % group.size], group.previous, group,
        )
    return gathered
