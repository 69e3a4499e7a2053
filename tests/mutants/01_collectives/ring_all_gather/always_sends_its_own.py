"""mutant: all chunks in order, wrong value"""

import torch

from course_lib.comm import Group, exchange


def ring_all_gather(chunk: torch.Tensor, group: Group, sizes: list[int]) -> torch.Tensor:
    parts = [chunk.clone()] * group.size
    for step in range(1, group.size):
        incoming = chunk.new_empty(sizes[group.previous])
        exchange(chunk, group.next, incoming, group.previous, group)
        parts[group.index - step] = incoming
    return torch.cat(parts)
