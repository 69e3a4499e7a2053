"""mutant: a collective was used: ring all_gather"""

import torch

from course_lib import comm
from course_lib.comm import Group


def ring_all_gather(chunk: torch.Tensor, group: Group, sizes: list[int]) -> torch.Tensor:
    longest = max(sizes)
    padded = chunk.new_zeros(group.size, longest)
    padded[group.index, : chunk.numel()] = chunk
    comm.ring_all_gather(padded, group)
    return torch.cat([row[:size] for row, size in zip(padded, sizes)])
