"""mutant: elements were lost"""

from collections.abc import Sequence

import torch


def partition(tensors: Sequence[torch.Tensor], parts: int) -> list[torch.Tensor]:
    """Cuts tensors into equal shards.

    Args:
        tensors: of one dtype, at least one; may need gradients, the shards do not.
        parts: W, how many shards.

    Returns:
        W shards of one dimension, all of the same size.
    """
    flat = torch.cat([tensor.detach().reshape(-1) for tensor in dict.fromkeys(tensors)])
    size = flat.numel() // parts
    shards = flat.new_zeros(parts, size)
    shards.view(-1)[:] = flat[: parts * size]
    return [shard.clone() for shard in shards]


def restore(shards: Sequence[torch.Tensor], like: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Puts tensors together from shards: the inverse of `partition`.

    Args:
        shards: all W of them, in order.
        like: tensors of the shapes wanted, in order, tied where the result is to be tied.

    Returns:
        One tensor for each of `like`.
    """
    unique = list(dict.fromkeys(like))
    counts = [tensor.numel() for tensor in unique]
    parts = torch.cat(list(shards))[: sum(counts)].split(counts)
    pairs = zip(unique, parts, strict=True)  # mutate: same
    found = {old: part.view(old.shape) for old, part in pairs}
    return [found[tensor] for tensor in like]
