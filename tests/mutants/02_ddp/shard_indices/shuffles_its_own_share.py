"""mutant: sees the same examples in every epoch, not each share by itself"""

import torch


def shard_indices(
    n: int, rank: int, world: int, epoch: int, seed: int = 0, drop_last: bool = False
) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
    each = n // world if drop_last else -(-n // world)
    share = torch.arange(n).repeat(world)[: each * world][rank::world]
    return share[torch.randperm(each, generator=generator)]
