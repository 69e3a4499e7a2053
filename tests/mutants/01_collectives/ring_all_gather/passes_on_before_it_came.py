"""mutant: large messages, wrong value"""

import torch

from course_lib.comm import Group, irecv, isend


def ring_all_gather(chunk: torch.Tensor, group: Group, sizes: list[int]) -> torch.Tensor:
    gathered = chunk.new_zeros(sum(sizes))
    parts = gathered.split(sizes)
    parts[group.index].copy_(chunk)
    works = []
    for step in range(group.size - 1):
        giving, taking = group.index - step, group.index - step - 1
        works.append(irecv(parts[taking % group.size], group.previous, group))
        works.append(isend(parts[giving % group.size].clone(), group.next, group))
    for work in works:
        work.wait()
    return gathered
