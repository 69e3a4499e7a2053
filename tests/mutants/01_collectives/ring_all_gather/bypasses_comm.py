"""mutant: called past course_lib.comm"""

import torch
import torch.distributed as dist

from course_lib.comm import Group


def ring_all_gather(chunk: torch.Tensor, group: Group, sizes: list[int]) -> torch.Tensor:
    parts = [chunk.new_zeros(max(sizes)) for _ in sizes]
    padded = chunk.new_zeros(max(sizes))
    padded[: chunk.numel()] = chunk
    dist.all_gather(parts, padded)
    return torch.cat([part[:size] for part, size in zip(parts, sizes)])
