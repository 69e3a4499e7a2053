"""mutant: one stretch in a row, uneven work in all"""

from collections.abc import Sequence

import torch


def zigzag_split(
    x: torch.Tensor, dim: int, n: int, index: int
) -> tuple[torch.Tensor, torch.Tensor]:
    positions = torch.arange(x.shape[dim]).tensor_split(n)[index]
    return x.index_select(dim, positions), positions


def zigzag_join(shards: Sequence[torch.Tensor], dim: int) -> torch.Tensor:
    return torch.cat(list(shards), dim)
