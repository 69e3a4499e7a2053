"""mutant: more than one number is sent"""

from collections.abc import Sequence

import torch

from course_lib.comm import Group, all_reduce


def sharded_clip_norm(
    sharded: Sequence[torch.Tensor],
    replicated: Sequence[torch.Tensor],
    max_norm: float,
    group: Group,
) -> float:
    """Clips all gradients together, in place.

    Args:
        sharded: this rank's shards of gradients; may be empty.
        replicated: gradients that all ranks have; may be empty.
        max_norm: the limit.
        group: the ranks that share the shards.

    Returns:
        The norm before clipping.
    """
    squares = torch.zeros((), dtype=torch.float64)
    room = torch.zeros(group.size, 256, dtype=torch.float64)
    row = torch.cat([squares.view(1), *(gradient.double().reshape(-1) for gradient in sharded)])
    room[group.index, : row.numel()] = row
    all_reduce(room, group)
    squares += room.square().sum()
    for gradient in replicated:
        squares += gradient.double().square().sum()
    norm = squares.sqrt().item()
    if norm > max_norm:
        for gradient in [*sharded, *replicated]:
            gradient.mul_(max_norm / (norm + 1e-6))
    return norm
