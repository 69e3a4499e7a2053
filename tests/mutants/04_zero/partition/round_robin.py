"""mutant: whole tensors were dealt out"""

from collections.abc import Sequence

import torch


def partition(tensors: Sequence[torch.Tensor], parts: int) -> list[torch.Tensor]:
    hands: list[list[torch.Tensor]] = [[] for _ in range(parts)]
    for number, tensor in enumerate(dict.fromkeys(tensors)):
        hands[number % parts].append(tensor.detach().reshape(-1))
    empty = tensors[0].detach().new_zeros(0)
    return [torch.cat([empty, *hand]) for hand in hands]


def restore(shards: Sequence[torch.Tensor], like: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    found = {}
    at = [0] * len(shards)
    for number, tensor in enumerate(dict.fromkeys(like)):
        hand = number % len(shards)
        part = shards[hand][at[hand] : at[hand] + tensor.numel()]
        found[tensor] = part.view(tensor.shape)
        at[hand] += tensor.numel()
    return [found[tensor] for tensor in like]
