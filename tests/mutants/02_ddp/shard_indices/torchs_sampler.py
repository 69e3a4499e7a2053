"""variant: torch's own sampler, whose seed is seed + epoch"""

import torch
from torch.utils.data import DistributedSampler


def shard_indices(
    n: int, rank: int, world: int, epoch: int, seed: int = 0, drop_last: bool = False
) -> torch.Tensor:
    sampler = DistributedSampler(range(n), world, rank, seed=seed, drop_last=drop_last)
    sampler.set_epoch(epoch)
    return torch.tensor(list(sampler), dtype=torch.int64)
