"""mutant: each tensor is padded by itself"""

from collections.abc import Sequence

import torch


def partition(tensors: Sequence[torch.Tensor], parts: int) -> list[torch.Tensor]:
    rows: list[list[torch.Tensor]] = [[] for _ in range(parts)]
    for tensor in dict.fromkeys(tensors):
        size = -(-tensor.numel() // parts)
        padded = tensor.new_zeros(parts * size)
        padded[: tensor.numel()] = tensor.detach().reshape(-1)
        for row, piece in zip(rows, padded.view(parts, size), strict=True):
            row.append(piece)
    return [torch.cat(row).detach() for row in rows]


def restore(shards: Sequence[torch.Tensor], like: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    found = {}
    at = 0
    for tensor in dict.fromkeys(like):
        size = -(-tensor.numel() // len(shards))
        whole = torch.cat([shard[at : at + size] for shard in shards])
        found[tensor] = whole[: tensor.numel()].view(tensor.shape)
        at += size
    return [found[tensor] for tensor in like]
