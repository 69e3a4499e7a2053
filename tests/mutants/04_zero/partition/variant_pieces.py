"""variant: no row at all; each shard is filled piece by piece"""

from collections.abc import Iterator, Sequence

import torch


def pieces(tensors: Sequence[torch.Tensor], size: int) -> Iterator[tuple[int, int, int, int, int]]:
    """Tensor, its first element, shard, the place in that, count."""
    at, seen = 0, set()
    for number, tensor in enumerate(tensors):
        if id(tensor) in seen:
            continue
        seen.add(id(tensor))
        done = 0
        while done < tensor.numel():
            shard, place = divmod(at, size)
            count = min(tensor.numel() - done, size - place)
            yield number, done, shard, place, count
            at, done = at + count, done + count


def partition(tensors: Sequence[torch.Tensor], parts: int) -> list[torch.Tensor]:
    total = sum({id(t): t.numel() for t in tensors}.values())
    size = (total + parts - 1) // parts
    shards = [torch.zeros(size, dtype=tensors[0].dtype) for _ in range(parts)]
    for number, first, shard, place, count in pieces(tensors, size):
        row = tensors[number].detach().flatten()
        shards[shard][place : place + count] = row[first : first + count]
    return shards


def restore(shards: Sequence[torch.Tensor], like: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    made = {id(t): torch.zeros(t.shape, dtype=shards[0].dtype) for t in like}
    for number, first, shard, place, count in pieces(like, shards[0].numel()):
        row = made[id(like[number])].view(-1)
        row[first : first + count] = shards[shard][place : place + count]
    return [made[id(t)] for t in like]
