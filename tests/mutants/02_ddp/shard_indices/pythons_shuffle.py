"""variant: Python's own generator, seeded with a text; places modulo n"""

import random

import torch


def shard_indices(
    n: int, rank: int, world: int, epoch: int, seed: int = 0, drop_last: bool = False
) -> torch.Tensor:
    order = list(range(n))
    random.Random(f"{seed} {epoch}").shuffle(order)
    each = n // world if drop_last else -(-n // world)
    return torch.tensor(
        [order[place % n] for place in range(rank, each * world, world)], dtype=torch.int64
    )
