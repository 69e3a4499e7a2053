"""mutant: is no int64 tensor of one dimension"""

import torch


def shard_indices(
    n: int, rank: int, world: int, epoch: int, seed: int = 0, drop_last: bool = False
) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
    order = torch.randperm(n, generator=generator)
    each = n // world if drop_last else -(-n // world)
    return order.repeat(world)[: each * world][rank::world].tolist()
