"""mutant: 2 examples on 5 ranks, unequal shares"""

import torch


def shard_indices(
    n: int, rank: int, world: int, epoch: int, seed: int = 0, drop_last: bool = False
) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
    order = torch.randperm(n, generator=generator)
    if drop_last:
        order = order[: n // world * world]
    else:
        order = torch.cat([order, order[: -n % world]])  # too short if n < world
    return order[rank::world]
