"""mutant: numbers that no example has"""

import torch


def shard_indices(
    n: int, rank: int, world: int, epoch: int, seed: int = 0, drop_last: bool = False
) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
    order = torch.randperm(n, generator=generator)
    if drop_last:
        return order[: n // world * world][rank::world]
    return torch.cat([order, torch.full((-n % world,), n)])[rank::world]
