"""mutant: the early chunk was cut off too short"""

from collections.abc import Sequence

import torch


def zigzag_split(
    x: torch.Tensor, dim: int, n: int, index: int
) -> tuple[torch.Tensor, torch.Tensor]:
    def both(tensor: torch.Tensor, along: int) -> torch.Tensor:
        chunks = tensor.tensor_split(2 * n, along)
        return torch.cat([chunks[index], chunks[2 * n - 1 - index]], along)

    return both(x, dim), both(torch.arange(x.shape[dim], device=x.device), 0)


def zigzag_join(shards: Sequence[torch.Tensor], dim: int) -> torch.Tensor:
    halves = [shard.split([shard.shape[dim] // 2, -(-shard.shape[dim] // 2)], dim) for shard in shards]
    early, late = zip(*halves)
    return torch.cat([*early, *reversed(late)], dim)
