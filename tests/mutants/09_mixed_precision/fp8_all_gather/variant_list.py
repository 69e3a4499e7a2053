"""variant: flat bytes, and amax in a tensor of one element"""

import torch

from course_lib.comm import Group, all_gather, all_reduce

E4M3 = torch.float8_e4m3fn


def fp8_all_gather(shard: torch.Tensor, group: Group) -> tuple[torch.Tensor, torch.Tensor]:
    """Collects a weight of which each rank has a part, in 8 bits."""
    part = shard.detach().float()
    amax = torch.tensor([float(part.abs().max())])
    all_reduce(amax, group, "max")
    scale = (amax / 448 if amax.item() else torch.ones(1)).squeeze()
    mine = (part / scale).to(E4M3).reshape(-1).view(torch.uint8)
    data = torch.empty(group.size * mine.numel(), dtype=torch.uint8)
    all_gather(data, mine, group)
    return data.view(E4M3).view(-1, *shard.shape[1:]), scale
