"""mutant: not in the order of the ranks"""

import torch

from course_lib.comm import Group, exchange


def ring_all_gather(chunk: torch.Tensor, group: Group, sizes: list[int]) -> torch.Tensor:
    gathered = chunk.new_empty(sum(sizes))
    parts = gathered.split(sizes)
    parts[group.index].copy_(chunk)
    for step in range(group.size - 1):
        giving, taking = group.index - step, group.index - step - 1
        exchange(
            parts[giving % group.size], group.next,
            parts[taking % group.size], group.previous, group,
        )
    return torch.cat([parts[(group.index - i) % group.size] for i in range(group.size)])
