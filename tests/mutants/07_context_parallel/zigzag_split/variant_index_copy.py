"""variant: the sequence moved to dim 0; joined by writing at the positions"""

from collections.abc import Sequence

import torch


def zigzag_split(
    x: torch.Tensor, dim: int, n: int, index: int
) -> tuple[torch.Tensor, torch.Tensor]:
    line = x.movedim(dim, 0)
    places = torch.arange(line.shape[0])
    chunks = torch.tensor_split(places, 2 * n)
    positions = torch.hstack((chunks[index], chunks[-1 - index]))
    return line[positions].movedim(0, dim), positions


def zigzag_join(shards: Sequence[torch.Tensor], dim: int) -> torch.Tensor:
    lines = [shard.movedim(dim, 0) for shard in shards]
    total = sum(len(line) for line in lines)
    whole = torch.zeros((total, *lines[0].shape[1:]), dtype=lines[0].dtype)
    chunks = torch.arange(total).tensor_split(2 * len(lines))
    for i, line in enumerate(lines):
        whole = whole.index_copy(0, torch.cat([chunks[i], chunks[-1 - i]]), line)
    return whole.movedim(0, dim)
