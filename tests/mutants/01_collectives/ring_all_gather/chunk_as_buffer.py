"""mutant: the chunk was used as a buffer"""

import torch

from course_lib.comm import Group, exchange


def ring_all_gather(chunk: torch.Tensor, group: Group, sizes: list[int]) -> torch.Tensor:
    parts = [chunk.clone() for _ in sizes]
    for step in range(1, group.size):
        source = group.index - step
        incoming = chunk.new_empty(sizes[source])
        exchange(parts[source + 1 if source + 1 < group.size else 0], group.next, incoming, group.previous, group)
        parts[source] = incoming
        if incoming.shape == chunk.shape:
            chunk.copy_(incoming)
    return torch.cat(parts)
