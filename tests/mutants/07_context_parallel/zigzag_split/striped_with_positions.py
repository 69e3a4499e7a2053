"""mutant: every n-th position: striped"""

from collections.abc import Sequence

import torch


def zigzag_split(
    x: torch.Tensor, dim: int, n: int, index: int
) -> tuple[torch.Tensor, torch.Tensor]:
    order = torch.arange(x.shape[dim])[index::n]
    return x.index_select(dim, order), order


def zigzag_join(shards: Sequence[torch.Tensor], dim: int) -> torch.Tensor:
    early, late = zip(*(shard.tensor_split(2, dim) for shard in shards))
    return torch.cat([*early, *reversed(late)], dim)
