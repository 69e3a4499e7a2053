"""variant: the lengths of the chunks from those of the whole"""

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
    n = len(shards)
    total = sum(shard.shape[dim] for shard in shards)
    chunks = torch.arange(total).tensor_split(2 * n)
    halves = [shard.split([len(chunks[i]), len(chunks[2 * n - 1 - i])], dim)
              for i, shard in enumerate(shards)]
    early, late = zip(*halves)
    return torch.cat([*early, *reversed(late)], dim)
