"""mutant: past course_lib.comm"""

from collections.abc import Sequence

import torch

from course_lib.comm import Group


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
    for gradient in sharded:
        squares += gradient.double().square().sum()
    torch.distributed.all_reduce(squares)
    for gradient in replicated:
        squares += gradient.double().square().sum()
    norm = squares.sqrt().item()
    if norm > max_norm:
        for gradient in [*sharded, *replicated]:
            gradient.mul_(max_norm / (norm + 1e-6))
    return norm
