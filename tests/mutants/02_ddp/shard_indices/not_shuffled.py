"""mutant: the examples are not shuffled"""

import torch


def shard_indices(
    n: int, rank: int, world: int, epoch: int, seed: int = 0, drop_last: bool = False
) -> torch.Tensor:
    order = torch.arange(n)
    each = n // world if drop_last else -(-n // world)
    return order.repeat(world)[: each * world][rank::world]
