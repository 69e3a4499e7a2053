"""mutant: the gradient of x"""

from collections.abc import Sequence

import torch


def zigzag_split(
    x: torch.Tensor, dim: int, n: int, index: int
) -> tuple[torch.Tensor, torch.Tensor]:
    def both(tensor: torch.Tensor, along: int) -> torch.Tensor:
        chunks = tensor.tensor_split(2 * n, along)
        return torch.cat([chunks[index], chunks[2 * n - 1 - index]], along).detach()

    return both(x, dim), both(torch.arange(x.shape[dim], device=x.device), 0)


def zigzag_join(shards: Sequence[torch.Tensor], dim: int) -> torch.Tensor:
    early, late = zip(*(shard.tensor_split(2, dim) for shard in shards))
    return torch.cat([*early, *reversed(late)], dim)
