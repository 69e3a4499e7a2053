"""mutant: two epochs have the same order, set_epoch"""

import torch


def shard_indices(
    n: int, rank: int, world: int, epoch: int, seed: int = 0, drop_last: bool = False
) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(n, generator=generator)
    each = n // world if drop_last else -(-n // world)
    return order.repeat(world)[: each * world][rank::world]
