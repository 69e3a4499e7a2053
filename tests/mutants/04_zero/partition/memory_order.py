"""mutant: in the order of the memory"""

from collections.abc import Sequence

import torch


def row_of(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.detach()
    return torch.as_strided(tensor, (tensor.numel(),), (1,))


def partition(tensors: Sequence[torch.Tensor], parts: int) -> list[torch.Tensor]:
    flat = torch.cat([row_of(tensor) for tensor in dict.fromkeys(tensors)])
    size = -(-flat.numel() // parts)
    padded = torch.cat([flat, flat.new_zeros(parts * size - flat.numel())])
    return [shard.clone() for shard in padded.view(parts, size)]


def restore(shards: Sequence[torch.Tensor], like: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    unique = list(dict.fromkeys(like))
    counts = [tensor.numel() for tensor in unique]
    parts = torch.cat(list(shards))[: sum(counts)].split(counts)
    found = {old: part.view(old.shape) for old, part in zip(unique, parts, strict=True)}
    return [found[tensor] for tensor in like]
