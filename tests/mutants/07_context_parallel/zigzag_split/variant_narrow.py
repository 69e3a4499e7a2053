"""variant: narrow, and a walk from both ends"""

from collections.abc import Sequence

import torch


def zigzag_split(
    x: torch.Tensor, dim: int, n: int, index: int
) -> tuple[torch.Tensor, torch.Tensor]:
    length = x.shape[dim]
    sizes = [length // (2 * n) + (chunk < length % (2 * n)) for chunk in range(2 * n)]
    parts, places = [], []
    for chunk in (index, 2 * n - 1 - index):
        start = sum(sizes[:chunk])
        parts.append(x.narrow(dim, start, sizes[chunk]))
        places.append(torch.arange(start, start + sizes[chunk], device=x.device))
    return torch.cat(parts, dim), torch.cat(places)


def zigzag_join(shards: Sequence[torch.Tensor], dim: int) -> torch.Tensor:
    length, n = sum(shard.shape[dim] for shard in shards), len(shards)
    front, back = [], []
    for i, shard in enumerate(shards):
        first = length // (2 * n) + (i < length % (2 * n))
        front.append(shard.narrow(dim, 0, first))
        back.insert(0, shard.narrow(dim, first, shard.shape[dim] - first))
    return torch.cat(front + back, dim)
