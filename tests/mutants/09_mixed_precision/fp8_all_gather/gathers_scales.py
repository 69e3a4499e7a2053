"""mutant: scales are gathered too"""

import torch

from course_lib.comm import Group, all_gather

E4M3 = torch.float8_e4m3fn


def fp8_all_gather(shard: torch.Tensor, group: Group) -> tuple[torch.Tensor, torch.Tensor]:
    """Collects a weight of which each rank has a part, in 8 bits."""
    part = shard.detach().float()
    amax = part.abs().amax()
    every = amax.new_empty(group.size)
    all_gather(every, amax[None], group)
    amax = every.amax()
    scale = torch.where(amax == 0, 1.0, amax / torch.finfo(E4M3).max)
    mine = (part / scale).to(E4M3).view(torch.uint8)
    data = mine.new_empty(group.size * len(mine), *mine.shape[1:])
    all_gather(data, mine, group)
    return data.view(E4M3), scale
