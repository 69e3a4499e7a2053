"""variant: torch.nn.utils.parameters_to_vector and narrow"""

from collections.abc import Sequence

import torch
from torch.nn.utils import parameters_to_vector


def partition(tensors: Sequence[torch.Tensor], parts: int) -> list[torch.Tensor]:
    unique = list({id(tensor): tensor for tensor in tensors}.values())
    row = parameters_to_vector([tensor.detach().contiguous() for tensor in unique])
    missing = (parts - row.numel() % parts) % parts
    row = torch.cat([row, torch.zeros(missing, dtype=row.dtype)])
    size = row.numel() // parts
    return [row.narrow(0, rank * size, size).clone() for rank in range(parts)]


def restore(shards: Sequence[torch.Tensor], like: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    row = torch.cat(list(shards))
    new: dict[torch.Tensor, torch.Tensor] = {}
    for tensor in like:
        if tensor not in new:
            count = tensor.numel()
            new[tensor], row = row[:count].reshape(tensor.shape), row[count:]
    return [new[tensor] for tensor in like]
