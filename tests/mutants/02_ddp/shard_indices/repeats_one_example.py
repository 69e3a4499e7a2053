"""mutant: is seen, repeat the order from its beginning"""

import torch


def shard_indices(
    n: int, rank: int, world: int, epoch: int, seed: int = 0, drop_last: bool = False
) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
    order = torch.randperm(n, generator=generator)
    if drop_last:
        return order[: n // world * world][rank::world]
    return torch.cat([order, order[:1].repeat(-n % world)])[rank::world]
