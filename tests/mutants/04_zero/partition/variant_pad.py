"""variant: torch.nn.functional.pad and tuples, running offsets"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F


def partition(tensors: Sequence[torch.Tensor], parts: int) -> list[torch.Tensor]:
    with torch.no_grad():
        seen: list[torch.Tensor] = []
        for tensor in tensors:
            if not any(tensor is other for other in seen):
                seen.append(tensor)
        row = torch.cat([tensor.contiguous().view(-1) for tensor in seen])
        row = F.pad(row, (0, -row.numel() % parts))
        return [shard.clone() for shard in row.split(row.numel() // parts)]


def restore(shards: Sequence[torch.Tensor], like: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    row = torch.cat(tuple(shards))
    begins: dict[int, int] = {}
    at = 0
    result: list[torch.Tensor] = []
    for tensor in like:
        if id(tensor) in begins:
            result.append(result[begins[id(tensor)]])
            continue
        begins[id(tensor)] = len(result)
        result.append(row[at : at + tensor.numel()].reshape(tensor.shape).clone())
        at += tensor.numel()
    return result
