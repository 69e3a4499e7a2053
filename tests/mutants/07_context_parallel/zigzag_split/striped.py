"""mutant: every n-th position: striped, counted in the shard"""

from collections.abc import Sequence

import torch


def zigzag_split(
    x: torch.Tensor, dim: int, n: int, index: int
) -> tuple[torch.Tensor, torch.Tensor]:
    order = torch.arange(x.shape[dim])[index::n]
    return x.index_select(dim, order), torch.arange(len(order))


def zigzag_join(shards: Sequence[torch.Tensor], dim: int) -> torch.Tensor:
    total = sum(shard.shape[dim] for shard in shards)
    whole = torch.cat(list(shards), dim)
    order = torch.cat([torch.arange(total)[i :: len(shards)] for i in range(len(shards))])
    return whole.index_select(dim, order.argsort())
