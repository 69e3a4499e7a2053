"""mutant: the global random state was changed, dropout"""

import torch


def shard_indices(
    n: int, rank: int, world: int, epoch: int, seed: int = 0, drop_last: bool = False
) -> torch.Tensor:
    torch.manual_seed(seed * 1_000_003 + epoch)
    order = torch.randperm(n)
    each = n // world if drop_last else -(-n // world)
    return order.repeat(world)[: each * world][rank::world]
