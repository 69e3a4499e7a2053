"""mutant: unequal shares, deadlock, nobody else calls"""

import torch


def shard_indices(
    n: int, rank: int, world: int, epoch: int, seed: int = 0, drop_last: bool = False
) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
    order = torch.randperm(n, generator=generator)
    if drop_last:
        order = order[: n // world * world]
    return order[rank::world]
