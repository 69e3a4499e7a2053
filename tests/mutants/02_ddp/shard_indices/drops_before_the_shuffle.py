"""mutant: seen in none of 4 epochs, before the shuffle"""

import torch


def shard_indices(
    n: int, rank: int, world: int, epoch: int, seed: int = 0, drop_last: bool = False
) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
    each = n // world if drop_last else -(-n // world)
    order = torch.randperm(min(n, each * world), generator=generator)
    return order.repeat(world)[: each * world][rank::world]
